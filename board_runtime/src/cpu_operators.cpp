// Support code of CPU operators: types, shapes, attributes, registry, fused activations.
#include <cmath>
#include <limits>

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {
namespace {

struct TypeEntry {
    Type type;
    const char* name;
    std::size_t bytes;
};
constexpr TypeEntry kTypes[] = {{Type::kFloat32, "float32", 4}, {Type::kInt64, "int64", 8}, {Type::kInt32, "int32", 4},
                                {Type::kBool, "bool", 1},       {Type::kUint8, "uint8", 1}, {Type::kInt8, "int8", 1}};

}  // namespace

std::size_t type_bytes(Type type) { return kTypes[static_cast<std::size_t>(type)].bytes; }
const char* type_name(Type type) { return kTypes[static_cast<std::size_t>(type)].name; }

Type type_of(const std::string& name, const std::string& where) {
    for (const TypeEntry& entry : kTypes)
        if (name == entry.name) return entry.type;
    throw FormatError(where + ": type expected float32, int64, int32, bool, uint8 or int8, found " + name);
}

Shape::Shape(std::initializer_list<std::int64_t> dims) {
    for (const std::int64_t value : dims) push(value);
}

Shape::Shape(const std::vector<std::int64_t>& dims) {
    for (const std::int64_t value : dims) push(value);
}

std::int64_t Shape::count(int first, int last) const {
    std::int64_t product = 1;
    for (int i = first; i < last; ++i) product *= dim[i];
    return product;
}

void Shape::push(std::int64_t value) {
    if (rank == kMaxRank) throw Error("a tensor has more than " + std::to_string(kMaxRank) + " dimensions");
    dim[rank++] = value;
}

bool Shape::operator==(const Shape& other) const {
    if (rank != other.rank) return false;
    for (int i = 0; i < rank; ++i)
        if (dim[i] != other.dim[i]) return false;
    return true;
}

std::string Shape::text() const {
    std::string out;
    for (int i = 0; i < rank; ++i) out += (i ? "x" : "") + std::to_string(dim[i]);
    return rank ? out : "scalar";
}

std::string NodeInfo::where(const char* key) const { return "node '" + name() + "' (" + op() + "), attribute " + key; }

void NodeInfo::fail(const std::string& message) const {
    throw Error("node '" + name() + "' (" + op() + "): " + message);
}

bool NodeInfo::has(const char* key) const { return node_->attrs.find(key) != nullptr; }

std::int64_t NodeInfo::integer(const char* key, std::int64_t fallback) const {
    const json::Value* value = node_->attrs.find(key);
    if (!value) return fallback;
    if (value->is_bool()) return value->as_bool(where(key)) ? 1 : 0;
    return value->as_integer(where(key));
}

std::int64_t NodeInfo::integer(const char* key) const {
    if (!has(key)) fail(std::string("attribute ") + key + " is missing");
    return integer(key, 0);
}

float NodeInfo::number(const char* key, float fallback) const {
    const json::Value* value = node_->attrs.find(key);
    return value ? static_cast<float>(value->as_number(where(key))) : fallback;
}

std::string NodeInfo::string(const char* key, const char* fallback) const {
    const json::Value* value = node_->attrs.find(key);
    return value ? value->as_string(where(key)) : std::string(fallback);
}

std::vector<std::int64_t> NodeInfo::integers(const char* key, std::vector<std::int64_t> fallback) const {
    const json::Value* value = node_->attrs.find(key);
    if (!value) return fallback;
    if (value->is_integer()) return {value->as_integer(where(key))};
    return value->integers(where(key));
}

std::vector<std::int64_t> NodeInfo::integers(const char* key) const {
    if (!has(key)) fail(std::string("attribute ") + key + " is missing");
    return integers(key, {});
}

std::vector<float> NodeInfo::numbers(const char* key, std::vector<float> fallback) const {
    const json::Value* value = node_->attrs.find(key);
    if (!value) return fallback;
    if (value->is_number()) return {static_cast<float>(value->as_number(where(key)))};
    std::vector<float> out;
    for (const double number : value->numbers(where(key))) out.push_back(static_cast<float>(number));
    return out;
}

void Registry::add(const std::string& op, Factory factory) {
    if (!factories_.emplace(op, std::move(factory)).second) throw Error("CPU operator " + op + " is registered twice");
}

const Factory* Registry::find(const std::string& op) const {
    const auto it = factories_.find(op);
    return it == factories_.end() ? nullptr : &it->second;
}

std::vector<std::string> Registry::names() const {
    std::vector<std::string> out;
    for (const auto& entry : factories_) out.push_back(entry.first);
    return out;
}

const Registry& Registry::instance() {
    static const Registry registry = [] {
        Registry all;
        register_all(all);
        return all;
    }();
    return registry;
}

void Args::missing(const char* what, std::size_t i) {
    throw MissingOperand(std::string(what) + " " + std::to_string(i) + " is missing");
}

void infer(const NodeInfo& node, const Kernel& kernel, const Args& args) {
    try {
        kernel.shape(args);
    } catch (const MissingOperand& error) {
        node.fail(error.what());
    }
    constexpr std::int64_t kMaxElements = std::int64_t{1} << 32;
    for (std::size_t i = 0; i < args.output_count; ++i) {
        const Shape& shape = args.out(i).shape;
        std::int64_t count = 1;
        for (int d = 0; d < shape.rank; ++d) {
            if (shape.dim[d] < 0 || shape.dim[d] > kMaxElements)
                node.fail("a result of shape " + shape.text() + " is not possible");
            if (shape.dim[d] > 0 && count > kMaxElements / shape.dim[d])
                node.fail("a result of shape " + shape.text() + " is too large");
            count *= shape.dim[d];
        }
    }
}

int normal_axis(const NodeInfo& node, std::int64_t axis, int rank) {
    if (axis < -rank || axis >= rank)
        node.fail("axis " + std::to_string(axis) + " is outside a tensor of rank " + std::to_string(rank));
    return static_cast<int>(axis < 0 ? axis + rank : axis);
}

IntegerList to_list(const NodeInfo& node, const std::vector<std::int64_t>& values) {
    IntegerList list;
    list.present = true;
    if (values.size() > 16) node.fail("more than 16 integers");
    for (const std::int64_t value : values) list.value[list.size++] = value;
    return list;
}

IntegerList read_integers(const NodeInfo& node, const Args& args, std::size_t input) {
    IntegerList list;
    if (!args.has(input)) return list;
    const Tensor& tensor = args.in(input);
    if (!tensor.constant) node.fail("input " + std::to_string(input) + " must be a constant");
    if (tensor.type != Type::kInt64 && tensor.type != Type::kInt32)
        node.fail("input " + std::to_string(input) + " must be int64 or int32, found " + type_name(tensor.type));
    const std::int64_t count = tensor.shape.count();
    if (count > 16) node.fail("input " + std::to_string(input) + " has more than 16 integers");
    list.present = true;
    list.size = static_cast<int>(count);
    for (int i = 0; i < list.size; ++i)
        list.value[i] = tensor.type == Type::kInt64 ? tensor.as<std::int64_t>()[i] : tensor.as<std::int32_t>()[i];
    return list;
}

namespace {

template <typename F>
std::function<void(Tensor&)> each(F f) {
    return [f](Tensor& tensor) {
        float* data = tensor.as<float>();
        const std::int64_t count = tensor.shape.count();
        for (std::int64_t i = 0; i < count; ++i) data[i] = f(data[i]);
    };
}

}  // namespace

FusedActivation::FusedActivation(const CpuNode& node) {
    if (node.activation.is_null()) return;
    const NodeInfo info(node);
    const std::string where = "node '" + node.name + "', activation";
    const std::string& kind = node.activation.at("kind", where).as_string(where + ".kind");
    const auto number = [&](const char* key, double fallback) {
        const json::Value* value = node.activation.find(key);
        return static_cast<float>(value ? value->as_number(where) : fallback);
    };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const float alpha = number("alpha", 0.0), beta = number("beta", 0.0);
    if (kind == "none") return;
    if (kind == "Relu") {
        apply_ = each([](float x) { return relu(x); });
    } else if (kind == "Clip") {
        const float low = number("low", -kInfinity), high = number("high", kInfinity);
        apply_ = each([low, high](float x) { return clip(x, low, high); });
    } else if (kind == "LeakyRelu") {
        apply_ = each([alpha](float x) { return leaky_relu(x, alpha); });
    } else if (kind == "PRelu") {
        std::vector<float> slope;
        for (const double value : node.activation.at("slope", where).numbers(where + ".slope"))
            slope.push_back(static_cast<float>(value));
        if (slope.empty()) info.fail("PRelu without slopes");
        apply_ = [slope, info](Tensor& tensor) {
            const std::int64_t channels = tensor.shape.rank > 1 ? tensor.shape.dim[1] : 1;
            if (slope.size() != 1 && static_cast<std::int64_t>(slope.size()) != channels)
                info.fail("PRelu slopes do not match the channels");
            const std::int64_t inner =
                tensor.shape.rank > 1 ? tensor.shape.count(2, tensor.shape.rank) : tensor.shape.count();
            float* data = tensor.as<float>();
            const std::int64_t count = tensor.shape.count();
            for (std::int64_t i = 0; i < count; ++i)
                data[i] = leaky_relu(
                    data[i], slope.size() == 1 ? slope[0] : slope[static_cast<std::size_t>(i / inner % channels)]);
        };
    } else if (kind == "Silu") {
        apply_ = each([](float x) { return x * sigmoid(x); });
    } else if (kind == "Sigmoid") {
        apply_ = each([](float x) { return sigmoid(x); });
    } else if (kind == "Tanh") {
        apply_ = each([](float x) { return std::tanh(x); });
    } else if (kind == "Gelu") {
        apply_ = each([](float x) { return gelu(x); });
    } else if (kind == "CustomGELU") {
        apply_ = each([](float x) { return gelu_tanh(x); });
    } else if (kind == "Mish") {
        apply_ = each([](float x) { return mish(x); });
    } else if (kind == "HardSwish") {
        apply_ = each([](float x) { return x * hard_sigmoid(x, 1.0f / 6.0f, 0.5f); });
    } else if (kind == "HardSigmoid") {
        apply_ = each([alpha, beta](float x) { return hard_sigmoid(x, alpha, beta); });
    } else if (kind == "Elu") {
        apply_ = each([alpha](float x) { return elu(x, alpha); });
    } else if (kind == "Softplus") {
        apply_ = each([](float x) { return softplus(x); });
    } else if (kind == "Erf") {
        apply_ = each([](float x) { return std::erf(x); });
    } else if (kind == "SiluPolynomial") {
        apply_ = each([](float x) { return silu_polynomial(x); });
    } else if (kind == "ClipSigmoid") {
        apply_ = each([](float x) { return clip(sigmoid(x), 0.1f, 0.9f); });
    } else {
        info.fail("fused activation " + kind + " is not known to the CPU partition");
    }
}

}  // namespace npuforge::cpu
