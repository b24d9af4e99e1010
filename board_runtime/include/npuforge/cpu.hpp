// What an operator of the CPU partition is: tensors, attributes, the kernel an operator folder's cpu.hpp provides, and
// the registry.
//
// hw_kernels/ops/<op>/cpu.hpp defines `inline void register_<op>(Registry&)` in this namespace; CMake finds it. Kernels
// have ONNX semantics on static shapes, are immutable after creation, and allocate nothing when run: memory comes from
// the context's arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "npuforge/device.hpp"
#include "npuforge/json.hpp"
#include "npuforge/program.hpp"

namespace npuforge::cpu {

enum class Type : std::uint8_t { kFloat32, kInt64, kInt32, kBool, kUint8, kInt8 };
std::size_t type_bytes(Type type);
const char* type_name(Type type);
/// By numpy name (`float32`, `int64`, `int32`, `bool`, `uint8`, `int8`); FormatError naming `where` otherwise.
Type type_of(const std::string& name, const std::string& where);

constexpr int kMaxRank = 9;  ///< 8 of a network's tensor, and the axis of 1 that an .xmodel may add

/// Dimensions without heap memory.
struct Shape {
    int rank = 0;
    std::int64_t dim[kMaxRank] = {};

    Shape() = default;
    Shape(std::initializer_list<std::int64_t> dims);
    explicit Shape(const std::vector<std::int64_t>& dims);
    std::int64_t count() const { return count(0, rank); }
    /// Product of dimensions [first, last).
    std::int64_t count(int first, int last) const;
    void push(std::int64_t value);
    bool operator==(const Shape& other) const;
    bool operator!=(const Shape& other) const { return !(*this == other); }
    std::string text() const;
};

struct Tensor {
    Type type = Type::kFloat32;
    Shape shape;
    void* data = nullptr;
    bool constant = false;  ///< data is readable when shapes are computed

    template <typename T>
    T* as() const {
        return static_cast<T*>(data);
    }
    std::size_t bytes() const { return static_cast<std::size_t>(shape.count()) * type_bytes(type); }
};

/// A kernel asked for an input or output that its node does not have.
class MissingOperand : public Error {
  public:
    using Error::Error;
};

/// What one call sees: nullptr marks an omitted optional input.
struct Args {
    const Tensor* const* inputs = nullptr;
    std::size_t input_count = 0;
    Tensor* const* outputs = nullptr;
    std::size_t output_count = 0;
    std::uint8_t* scratch = nullptr;

    bool has(std::size_t i) const { return i < input_count && inputs[i] != nullptr; }
    /// Throws MissingOperand where there is none.
    const Tensor& in(std::size_t i) const {
        if (!has(i)) missing("input", i);
        return *inputs[i];
    }
    Tensor& out(std::size_t i = 0) const {
        if (i >= output_count) missing("output", i);
        return *outputs[i];
    }
    [[noreturn]] static void missing(const char* what, std::size_t i);
};

/// Name, inputs and typed attributes of a node; every failure names the node.
class NodeInfo {
  public:
    explicit NodeInfo(const CpuNode& node) : node_(&node) {}
    const std::string& name() const { return node_->name; }
    const std::string& op() const { return node_->op; }
    std::size_t input_count() const { return node_->inputs.size(); }
    std::size_t output_count() const { return node_->outputs.size(); }
    bool has_input(std::size_t i) const { return i < node_->inputs.size() && !node_->inputs[i].empty(); }

    bool has(const char* key) const;
    std::int64_t integer(const char* key, std::int64_t fallback) const;
    std::int64_t integer(const char* key) const;
    float number(const char* key, float fallback) const;
    std::string string(const char* key, const char* fallback) const;
    /// An integer array (a single integer counts as an array of one); `fallback` when absent.
    std::vector<std::int64_t> integers(const char* key, std::vector<std::int64_t> fallback) const;
    std::vector<std::int64_t> integers(const char* key) const;
    std::vector<float> numbers(const char* key, std::vector<float> fallback) const;
    const json::Value& attributes() const { return node_->attrs; }

    [[noreturn]] void fail(const std::string& message) const;
    /// Message and failure in one: `check(ok, "...")`.
    void check(bool ok, const char* message) const {
        if (!ok) fail(message);
    }

  private:
    std::string where(const char* key) const;
    const CpuNode* node_;
};

/// One prepared node. `shape` sets type and shape of every output from the inputs' types and shapes (and the data of
/// constants); `run` computes.
struct Kernel {
    std::function<void(const Args&)> shape;
    std::function<void(const Args&)> run;
    std::function<std::size_t(const Args&)> scratch;  ///< bytes for `Args::scratch`; empty: none
    bool alias = false;       ///< output 0 is the bytes of input 0 under another shape: nothing is copied
    bool dynamic = false;     ///< `shape` gives upper bounds, `run` sets the real shape
    int open_axis = 0;        ///< the axis of all outputs that a dynamic `run` may shorten, from the end if negative
    bool shape_only = false;  ///< the result depends on input shapes alone
};

using Factory = std::function<Kernel(const NodeInfo&)>;

class Registry {
  public:
    void add(const std::string& op, Factory factory);
    const Factory* find(const std::string& op) const;
    std::vector<std::string> names() const;
    /// All operators of the build.
    static const Registry& instance();

  private:
    std::map<std::string, Factory> factories_;
};

/// Defined by the generated list of operator folders.
void register_all(Registry& registry);

/// Runs `kernel.shape`, turns a missing operand into an error that names the node, and checks that every result has a
/// size that memory can hold.
void infer(const NodeInfo& node, const Kernel& kernel, const Args& args);

/// An axis in [-rank, rank) as [0, rank); fails naming the node.
int normal_axis(const NodeInfo& node, std::int64_t axis, int rank);

/// Integers from an attribute (older opsets) or from a constant input (newer ones).
struct IntegerList {
    bool present = false;
    std::int64_t value[16] = {};
    int size = 0;
};
/// Reads a constant int64 or int32 input; fails naming the node if it is computed at run time.
IntegerList read_integers(const NodeInfo& node, const Args& args, std::size_t input);
IntegerList to_list(const NodeInfo& node, const std::vector<std::int64_t>& values);

/// The function fused behind a node, applied in place to its float32 output 0 (channel = dimension 1).
class FusedActivation {
  public:
    FusedActivation() = default;
    explicit FusedActivation(const CpuNode& node);
    bool empty() const { return !apply_; }
    void apply(Tensor& tensor) const { apply_(tensor); }

  private:
    std::function<void(Tensor&)> apply_;
};

}  // namespace npuforge::cpu
