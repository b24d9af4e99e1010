// See xir_op.hpp.
#include "xir_op.hpp"

#include <any>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <xir/attrs/attrs.hpp>

#include "buffers.hpp"
#include "xir_border.hpp"

namespace npuforge::plugin {

namespace {

using cpu::Shape;
using cpu::Tensor;
using cpu::Type;

// A built-in operator: ours of the same meaning, how its attributes are called there, attributes that XIR implies.
struct Builtin {
    const char* op;
    std::map<std::string, std::string> renamed;
    json::Object implied;
    bool vendor_has_it;
};

const std::map<std::string, Builtin>& builtins() {
    using json::Value;
    static const std::map<std::string, Builtin> table = {
        {"sigmoid", {"Sigmoid", {}, {}, true}},
        {"tanh", {"Tanh", {}, {}, true}},
        {"relu", {"Relu", {}, {}, false}},
        {"relu6", {"Clip", {}, {{"min", Value(0.0)}, {"max", Value(6.0)}}, false}},
        {"exp", {"Exp", {}, {}, true}},
        {"neg", {"Neg", {}, {}, false}},
        {"mish", {"Mish", {}, {}, false}},
        {"hard-swish", {"HardSwish", {}, {}, false}},
        {"hard-sigmoid", {"HardSigmoid", {}, {{"alpha", Value(1.0 / 6.0)}, {"beta", Value(0.5)}}, false}},
        {"leaky-relu", {"LeakyRelu", {{"alpha", "alpha"}}, {}, true}},
        {"add", {"Add", {}, {}, true}},
        {"sub", {"Sub", {}, {}, true}},
        {"mul", {"Mul", {}, {}, true}},
        {"div", {"Div", {}, {}, true}},
        {"min", {"Min", {}, {}, true}},
        {"max", {"Max", {}, {}, true}},
        {"matmul", {"MatMul", {}, {}, true}},
        {"concat", {"Concat", {{"axis", "axis"}}, {}, true}},
        {"softmax", {"Softmax", {{"axis", "axis"}}, {}, true}},
        {"transpose", {"Transpose", {{"order", "perm"}}, {}, true}},
        {"reshape", {"Reshape", {{"shape", "shape"}}, {}, true}},
        {"strided_slice", {"Slice", {{"begin", "starts"}, {"end", "ends"}, {"strides", "steps"}}, {}, true}},
        {"reduction_sum", {"ReduceSum", {{"axis", "axes"}, {"keep_dims", "keepdims"}}, {}, true}},
        {"reduction_max", {"ReduceMax", {{"axis", "axes"}, {"keep_dims", "keepdims"}}, {}, true}},
        {"reduction_mean", {"ReduceMean", {{"axis", "axes"}, {"keep_dims", "keepdims"}}, {}, false}},
        {"reduction_product", {"ReduceProd", {{"axis", "axes"}, {"keep_dims", "keepdims"}}, {}, false}},
        {"identity", {"Identity", {}, {}, false}},
        {"cast", {"Cast", {}, {}, false}},
    };
    return table;
}

template <typename T>
bool take(const xir::any& value, json::Value& result) {
    const T* typed = std::any_cast<T>(&value);
    if (!typed) return false;
    if constexpr (std::is_same_v<T, std::string>) {
        result = json::Value(*typed);
    } else if constexpr (std::is_floating_point_v<T>) {
        result = json::Value(static_cast<double>(*typed));
    } else {
        result = json::Value(static_cast<std::int64_t>(*typed));
    }
    return true;
}

template <typename T>
bool take_list(const xir::any& value, json::Value& result) {
    const std::vector<T>* typed = std::any_cast<std::vector<T>>(&value);
    if (!typed) return false;
    json::Array list;
    for (const T& item : *typed) {
        json::Value one;
        take<T>(xir::any(item), one);
        list.push_back(std::move(one));
    }
    result = json::Value(std::move(list));
    return true;
}

// The kinds of attributes that our writer gives; false for others.
bool to_json(const xir::any& value, json::Value& result) {
    return take<bool>(value, result) || take<std::int32_t>(value, result) || take<std::int64_t>(value, result) ||
           take<float>(value, result) || take<double>(value, result) || take<std::string>(value, result) ||
           take_list<std::int32_t>(value, result) || take_list<std::int64_t>(value, result) ||
           take_list<float>(value, result) || take_list<double>(value, result) || take_list<std::string>(value, result);
}

json::Value required(const xir::Op& op, const std::string& key) {
    json::Value value;
    if (!op.has_attr(key) || !to_json(op.get_attr(key), value)) {
        throw std::invalid_argument("op " + op.get_name() + " (" + op.get_type() + "): no attribute " + key +
                                    "; compile the network with npuforge");
    }
    return value;
}

Type type_of(const xir::Op& op) {
    const Element element = element_of(*op.get_output_tensor());
    if (element.bf16)
        throw std::invalid_argument("op " + op.get_name() + " (" + op.get_type() + "): type bfloat16 is not supported");
    const bool truth = element.type == Type::kUint8 && op.get_output_tensor()->has_attr("npuforge_bool");
    return truth ? Type::kBool : element.type;  // XIR has no bool
}

Shape shape_of(const xir::Op& op) {
    Shape shape;
    if (op.get_output_tensor()->has_attr("npuforge_scalar")) return shape;  // XIR has none
    const auto dims = op.get_output_tensor()->get_shape();
    if (dims.size() > static_cast<std::size_t>(cpu::kMaxRank)) {
        throw std::invalid_argument("op " + op.get_name() + ": more than " + std::to_string(cpu::kMaxRank) +
                                    " dimensions");
    }
    for (const std::int32_t dim : dims) shape.push(dim);
    return shape;
}

bool starts_with(const std::string& text, const std::string& start) {
    return text.compare(0, start.size(), start) == 0;
}

}  // namespace

std::vector<std::string> XirOp::plug_in_types() {
    std::vector<std::string> types = {"npuforge::Quantize", "npuforge::Dequantize", "npuforge::Cast"};
    for (const std::string& op : cpu::Registry::instance().names()) {
        types.push_back(op.find("::") == std::string::npos ? "onnx::" + op : op);
    }
    for (const auto& [type, builtin] : builtins()) {
        if (!builtin.vendor_has_it) types.push_back(type);
    }
    return types;
}

XirOp::XirOp(const xir::Op& op) : name_(op.get_name()) {
    const std::vector<const xir::Op*> producers = op.get_input_ops("input");
    producers_.assign(producers.begin(), producers.end());
    const Shape shape = shape_of(op);
    const Element element = element_of(*op.get_output_tensor());
    output_bytes_ = static_cast<std::size_t>(shape.count()) * element.bytes();
    const std::string type = op.get_type();
    const bool cast = type == "npuforge::Cast";  // between float32 and bf16
    if (type == "npuforge::Quantize" || type == "float2fix" || (cast && element.bf16)) {
        kind_ = Kind::kQuantise;
        describe_border(op);
    } else if (type == "npuforge::Dequantize" || type == "fix2float" || cast) {
        kind_ = Kind::kDequantise;
        describe_border(op);
    } else {
        describe_kernel(op);
    }
}

XirOp::Open XirOp::open_of(const xir::Op& op) {
    Open open;
    if (!op.has_attr("npuforge_open_shape")) return open;
    open.declared = required(op, "npuforge_open_shape").integers("op " + op.get_name());
    if (open.declared.size() != static_cast<std::size_t>(shape_of(op).rank))
        throw std::invalid_argument("op " + op.get_name() + ": npuforge_open_shape has " +
                                    std::to_string(open.declared.size()) + " axes, its tensor " +
                                    std::to_string(shape_of(op).rank) + "; compile the network again");
    if (!is_open(open.declared)) open.declared.clear();
    open.filling = op.get_fanout_num() == 0 ? Filling::kPublic : Filling::kInner;
    return open;
}

void XirOp::describe_border(const xir::Op& op) {
    const Shape shape = shape_of(op);
    if (producers_.size() != 1 || shape_of(*producers_[0]).count() != shape.count()) {
        throw std::invalid_argument("op " + name_ + " (" + op.get_type() + "): expected one input of its own size");
    }
    const Element from = element_of(*producers_[0]->get_output_tensor()), to = element_of(*op.get_output_tensor());
    const Element& fixed = kind_ == Kind::kQuantise ? to : from;
    const Element& real = kind_ == Kind::kQuantise ? from : to;
    BorderValues values;
    values.bf16 = op.get_type() == "npuforge::Cast";
    if (!(real == Element{}) || !(fixed == (values.bf16 ? Element{Type::kFloat32, true} : Element{Type::kInt8}))) {
        throw std::invalid_argument("op " + name_ + " (" + op.get_type() + "): a cast from " + from.name() + " to " +
                                    to.name() + " is not supported");
    }
    const std::string where = "op " + name_;
    if (op.has_attr("fix_point")) {
        const std::int64_t fix_point = required(op, "fix_point").as_integer(where, -64, 64);
        values.scale = {std::ldexp(1.0, -static_cast<int>(fix_point))};
        values.zero_point = {0};
    } else if (!values.bf16) {
        values.scale = required(op, "scale").numbers(where);
        for (const std::int64_t value : required(op, "zero_point").integers(where)) {
            values.zero_point.push_back(static_cast<std::int32_t>(value));
        }
        if (op.has_attr("mean")) values.mean = required(op, "mean").numbers(where);
    }
    border_ = border_tensor(where, shape, std::move(values));
}

void XirOp::describe_kernel(const xir::Op& op) {
    const std::string type = op.get_type();
    node_.name = name_;
    node_.op = starts_with(type, "onnx::") ? type.substr(6) : type;
    json::Object attrs, activation;
    const auto builtin = builtins().find(type);
    if (builtin != builtins().end()) {
        node_.op = builtin->second.op;
        attrs = builtin->second.implied;
        for (const auto& [theirs, ours] : builtin->second.renamed) {
            if (op.has_attr(theirs)) attrs[ours] = required(op, theirs);
        }
        if (type == "cast") {
            static const std::map<std::string, std::int64_t> onnx_types = {
                {"FLOAT32", 1}, {"UINT8", 2}, {"INT8", 3}, {"INT32", 6}, {"INT64", 7}};
            const std::string name = required(op, "data_type").as_string("op " + name_);
            const auto found = onnx_types.find(name);
            if (found == onnx_types.end()) {
                throw std::invalid_argument("op " + name_ + ": cast to " + name + " is not supported");
            }
            attrs["to"] = json::Value(found->second);
        }
    } else {
        static const std::set<std::string> own = {"shape",           "data_type",    "device",          "output_index",
                                                  "input_positions", "output_count", "empty_positions", "empty_types"};
        const auto list = op.get_attrs();
        for (const std::string& key : list->get_keys()) {
            json::Value value;
            if (own.count(key) || !to_json(op.get_attr(key), value)) continue;
            if (starts_with(key, "activation")) {
                activation[key == "activation" ? "kind" : key.substr(11)] = std::move(value);
            } else {
                attrs[starts_with(key, "onnx_") ? key.substr(5) : key] = std::move(value);
            }
        }
        const std::string where = "op " + name_;
        if (op.has_attr("output_index")) {
            output_index_ = static_cast<std::size_t>(required(op, "output_index").as_integer(where, 0, 63));
            output_count_ = static_cast<std::size_t>(
                required(op, "output_count").as_integer(where, static_cast<std::int64_t>(output_index_) + 1, 64));
        }
        if (op.has_attr("input_positions")) {
            for (const std::int64_t position : required(op, "input_positions").integers(where)) {
                if (position < 0 || position > 63) throw std::invalid_argument(where + ": input_positions: 0 to 63");
                positions_.push_back(static_cast<int>(position));
            }
        }
    }
    node_.attrs = json::Value(std::move(attrs));
    if (activation.count("kind")) node_.activation = json::Value(std::move(activation));
    if (positions_.empty()) {
        for (std::size_t i = 0; i < producers_.size(); ++i) positions_.push_back(static_cast<int>(i));
    }
    if (positions_.size() != producers_.size()) {
        throw std::invalid_argument("op " + name_ + ": input_positions: expected one for each of " +
                                    std::to_string(producers_.size()) + " inputs");
    }
    const cpu::Factory* factory = cpu::Registry::instance().find(node_.op);
    if (!factory) throw std::invalid_argument("op " + name_ + ": operator " + type + " is not known to npuforge");

    std::size_t count = 0;
    for (const int position : positions_) count = std::max(count, static_cast<std::size_t>(position) + 1);
    inputs_.resize(count);
    present_.resize(count, false);
    constant_.resize(count);
    open_.resize(count);
    output_open_ = open_of(op);
    room_ = shape_of(op);
    node_.inputs.assign(count, "");
    for (std::size_t i = 0; i < producers_.size(); ++i) {
        const auto at = static_cast<std::size_t>(positions_[i]);
        const xir::Op& producer = *producers_[i];
        Tensor& input = inputs_[at];
        input.type = type_of(producer);
        input.shape = shape_of(producer);
        open_[at] = open_of(producer);
        present_[at] = true;
        node_.inputs[at] = producer.get_name();
        if (producer.get_type() != "const" || !producer.has_attr("data")) continue;
        const xir::any data = producer.get_attr("data");
        if (const auto* bytes = std::any_cast<std::vector<char>>(&data)) constant_[at] = *bytes;
        if (constant_[at].size() < input.bytes()) {
            throw std::invalid_argument("op " + producer.get_name() + ": expected " + std::to_string(input.bytes()) +
                                        " bytes of data, found " + std::to_string(constant_[at].size()));
        }
        input.constant = true;
        input.data = constant_[at].data();
    }
    describe_empty(op);
    for (std::size_t i = 0; i < output_count_; ++i) node_.outputs.push_back(name_ + "/" + std::to_string(i));
    kernel_ = (*factory)(cpu::NodeInfo(node_));
    activation_ = cpu::FusedActivation(node_);
    if (kernel_.dynamic && output_open_.declared.empty()) {
        throw std::invalid_argument("op " + name_ + " (" + type +
                                    "): the data decide its rows, but it has no npuforge_open_shape; compile the "
                                    "network again");
    }
}

void XirOp::run(const std::vector<const void*>& inputs, void* output) const {
    if (inputs.size() != producers_.size()) {
        throw std::invalid_argument("op " + name_ + ": expected " + std::to_string(producers_.size()) +
                                    " inputs, found " + std::to_string(inputs.size()));
    }
    if (kind_ == Kind::kQuantise) {
        quantise(border_, name_, static_cast<const float*>(inputs[0]), MapStrides::nhwc(border_),
                 static_cast<std::uint8_t*>(output));
        return;
    }
    if (kind_ == Kind::kDequantise) {
        dequantise(border_, static_cast<const std::uint8_t*>(inputs[0]), static_cast<float*>(output),
                   MapStrides::nhwc(border_));
        return;
    }
    std::vector<Tensor> given = inputs_;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        given[static_cast<std::size_t>(positions_[i])].data = const_cast<void*>(inputs[i]);  // kernels only read it
    }
    std::vector<std::unique_ptr<char[]>> rows;
    gather(given, rows);
    run_kernel(given, output);
}

// Inputs without elements, which an .xmodel cannot hold.
void XirOp::describe_empty(const xir::Op& op) {
    if (!op.has_attr("empty_positions")) return;
    const std::string where = "op " + name_;
    const std::vector<std::int64_t> positions = required(op, "empty_positions").integers(where);
    const std::vector<std::string> types = required(op, "empty_types").strings(where);
    if (types.size() != positions.size())
        throw std::invalid_argument(where + ": expected one of empty_types for each of empty_positions");
    for (std::size_t i = 0; i < positions.size(); ++i) {
        if (positions[i] < 0 || positions[i] > 63) throw std::invalid_argument(where + ": empty_positions: 0 to 63");
        const auto at = static_cast<std::size_t>(positions[i]);
        if (at >= inputs_.size()) {
            inputs_.resize(at + 1);
            present_.resize(at + 1, false);
            constant_.resize(at + 1);
            open_.resize(at + 1);
            node_.inputs.resize(at + 1);
        }
        if (present_[at]) throw std::invalid_argument(where + ": input " + std::to_string(at) + " is given and empty");
        present_[at] = true;
        constant_[at].resize(1);
        node_.inputs[at] = "(empty)";
        inputs_[at].type = cpu::type_of(types[i], where);
        inputs_[at].shape = Shape{0};
        inputs_[at].constant = true;
        inputs_[at].data = constant_[at].data();
    }
}

// In place of each input with open axes the rows that are there, without gaps.
void XirOp::gather(std::vector<Tensor>& given, std::vector<std::unique_ptr<char[]>>& memory) const {
    for (std::size_t i = 0; i < given.size(); ++i) {
        Tensor& input = given[i];
        if (open_[i].declared.empty()) continue;
        const Shape room = input.shape;
        input.shape = used_rows(input.type, input.data, room, open_[i].declared, open_[i].filling);
        if (input.shape == room) continue;
        memory.push_back(std::make_unique<char[]>(std::max<std::size_t>(input.bytes(), 1)));
        auto* target = reinterpret_cast<std::uint8_t*>(memory.back().get());
        gather_rows(input.type, input.data, room, input.shape, target);
        input.data = target;
    }
}

void XirOp::run_kernel(std::vector<Tensor>& given, void* output) const {
    std::vector<const Tensor*> sources(given.size(), nullptr);
    for (std::size_t i = 0; i < given.size(); ++i) {
        if (present_[i]) sources[i] = &given[i];
    }
    std::vector<Tensor> results(output_count_);
    std::vector<Tensor*> targets;
    for (Tensor& result : results) targets.push_back(&result);
    cpu::Args args{sources.data(), sources.size(), targets.data(), targets.size(), nullptr};
    kernel_.shape(args);
    Tensor& own = results[output_index_];
    const bool open = !output_open_.declared.empty();
    if (open ? own.bytes() > output_bytes_ : own.bytes() != output_bytes_) {
        throw std::invalid_argument("op " + name_ + ": the result has " + std::to_string(own.bytes()) +
                                    " bytes, its tensor has " + std::to_string(output_bytes_) +
                                    "; compile the network again");
    }
    std::vector<std::unique_ptr<char[]>> others(output_count_);
    for (std::size_t i = 0; i < output_count_; ++i) {
        if (i != output_index_) others[i] = std::make_unique<char[]>(std::max<std::size_t>(results[i].bytes(), 1));
        results[i].data = i == output_index_ ? output : others[i].get();
    }
    if (kernel_.alias) {
        std::memcpy(output, given[0].data, own.bytes());
    } else {
        const std::size_t needed = kernel_.scratch ? kernel_.scratch(args) : 0;
        const auto scratch = std::make_unique<std::max_align_t[]>(needed / sizeof(std::max_align_t) + 1);
        args.scratch = reinterpret_cast<std::uint8_t*>(scratch.get());
        kernel_.run(args);
    }
    if (!activation_.empty()) activation_.apply(results[0]);
    if (!open) return;
    OutputBuffer buffer{output, output_bytes_, own.type, own.shape, false, output_open_.filling};
    spread_rows(name_, buffer, room_);
}

}  // namespace npuforge::plugin
