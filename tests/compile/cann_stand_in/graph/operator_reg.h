// Stand-in declarations of CANN's graph engine, from what is known of its interface: operator prototypes and their shape functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ge {

enum DataType { DT_FLOAT = 0, DT_FLOAT16 = 1, DT_INT8 = 2, DT_INT32 = 3, DT_UINT8 = 4, DT_INT64 = 9, DT_BOOL = 12 };
using graphStatus = std::uint32_t;
constexpr graphStatus GRAPH_SUCCESS = 0, GRAPH_FAILED = 0xFFFFFFFF;
constexpr std::int64_t UNKNOWN_DIM = -1;

class Shape {
  public:
    Shape() = default;
    explicit Shape(const std::vector<std::int64_t>& dims) : dims_(dims) {}
    std::vector<std::int64_t> GetDims() const { return dims_; }

  private:
    std::vector<std::int64_t> dims_;
};
class TensorDesc {
  public:
    Shape GetShape() const { return shape_; }
    void SetShape(const Shape& shape) { shape_ = shape; }
    DataType GetDataType() const { return type_; }
    void SetDataType(DataType type) { type_ = type; }
    graphStatus SetShapeRange(const std::vector<std::pair<std::int64_t, std::int64_t>>& value) {
        range = value;
        return GRAPH_SUCCESS;
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> range;

  private:
    Shape shape_;
    DataType type_ = DT_FLOAT;
};
class Operator {
  public:
    TensorDesc GetInputDescByName(const char* name) const { return tensors.at(name); }
    TensorDesc GetOutputDescByName(const char* name) const { return tensors.at(name); }
    graphStatus UpdateOutputDesc(const char* name, const TensorDesc& desc) {
        tensors.at(name) = desc;
        return GRAPH_SUCCESS;
    }
    graphStatus GetAttr(const char* name, std::int64_t& value) const { return first(ints, name, value); }
    graphStatus GetAttr(const char* name, float& value) const { return first(floats, name, value); }
    graphStatus GetAttr(const char* name, std::vector<std::int64_t>& value) const { return all(ints, name, value); }
    graphStatus GetAttr(const char* name, std::vector<float>& value) const { return all(floats, name, value); }
    std::map<std::string, TensorDesc> tensors;
    std::map<std::string, std::vector<std::int64_t>> ints;
    std::map<std::string, std::vector<float>> floats;

  private:
    template <class T>
    static graphStatus all(const std::map<std::string, std::vector<T>>& from, const char* name, std::vector<T>& value) {
        const auto found = from.find(name);
        if (found == from.end()) return GRAPH_FAILED;
        value = found->second;
        return GRAPH_SUCCESS;
    }
    template <class T>
    static graphStatus first(const std::map<std::string, std::vector<T>>& from, const char* name, T& value) {
        std::vector<T> values;
        if (all(from, name, values) != GRAPH_SUCCESS || values.empty()) return GRAPH_FAILED;
        value = values[0];
        return GRAPH_SUCCESS;
    }
};
struct TensorType {
    TensorType(std::initializer_list<DataType>) {}
};

/// What a prototype declares, by operator type.
struct Prototype {
    std::vector<std::string> inputs, outputs, attributes;
};
inline std::map<std::string, Prototype>& prototypes() {
    static std::map<std::string, Prototype> all;
    return all;
}
inline std::map<std::string, std::function<graphStatus(Operator&)>>& shape_functions() {
    static std::map<std::string, std::function<graphStatus(Operator&)>> all;
    return all;
}
struct Int {};
struct Float {};
struct Bool {};
struct ListInt {};
struct ListFloat {};
struct Declared {
    explicit Declared(const char* type) : prototype(prototypes()[type]) {}
    Declared& input(const char* name, TensorType) { return add(prototype.inputs, name); }
    Declared& output(const char* name, TensorType) { return add(prototype.outputs, name); }
    template <class Kind>
    Declared& attribute(const char* name, Kind) {
        return add(prototype.attributes, name);
    }
    template <class Kind, class Value>
    Declared& attribute(const char* name, Kind kind, Value) {
        return attribute(name, kind);
    }
    Declared& add(std::vector<std::string>& to, const char* name) {
        to.push_back(name);
        return *this;
    }
    Prototype& prototype;
};

}  // namespace ge

#define REG_OP(type) static const ge::Declared declared_##type = ge::Declared(#type)
#define INPUT(name, types) input(#name, ge::types)
#define OUTPUT(name, types) output(#name, ge::types)
#define ATTR(name, kind, otherwise) attribute(#name, ge::kind{}, otherwise)
#define REQUIRED_ATTR(name, kind) attribute(#name, ge::kind{})
#define OP_END_FACTORY_REG(type) add(ge::prototypes()["end"].inputs, #type);
#define IMPLEMT_COMMON_INFERFUNC(name) static ge::graphStatus name(ge::Operator& op)
#define COMMON_INFER_FUNC_REG(type, function) \
    static const bool shaped_##type = (ge::shape_functions()[#type] = function, true)
