// See graph_ends.hpp.
#include "graph_ends.hpp"

#include <algorithm>

#include "hw_kernels/bindings/onnxruntime_values.hpp"

namespace npuforge::ort {
namespace {

End end_of(const OrtApi& api, const OrtValueInfo* value) {
    End end;
    if (!value) return end;
    const char* name = nullptr;
    check(api, api.GetValueInfoName(value, &name));
    end.name = name;
    const OrtTypeInfo* type = nullptr;
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    check(api, api.GetValueInfoTypeInfo(value, &type));
    if (type) check(api, api.CastTypeInfoToTensorInfo(type, &tensor));
    if (!tensor) return end;
    check(api, api.GetTensorElementType(tensor, &end.type));
    std::size_t rank = 0;
    check(api, api.GetDimensionsCount(tensor, &rank));
    end.dims.resize(rank);
    check(api, api.GetDimensions(tensor, end.dims.data(), rank));
    end.shaped = rank > 0;  // a scalar and a tensor of unknown shape look the same
    return end;
}

std::vector<std::string> names_of(const OrtApi& api, const std::vector<const OrtValueInfo*>& values) {
    std::vector<std::string> names;
    for (const OrtValueInfo* value : values) names.push_back(end_of(api, value).name);
    return names;
}

std::string text_of(const std::vector<std::int64_t>& dims) {
    std::string text;
    for (const std::int64_t dim : dims) text += (text.empty() ? "" : "x") + (dim < 0 ? "?" : std::to_string(dim));
    return text.empty() ? "scalar" : text;
}

std::string list_of(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "none" : text;
}

void check_end(const End& end, const std::string& kind, const TensorMeta& meta, cpu::Type type) {
    const std::string what = kind + " '" + end.name + "'";
    if (end.type != element_type(type))
        throw ArgumentError(what + ": the build has it as " + cpu::type_name(type) + ", the model as ONNX type " +
                            std::to_string(static_cast<int>(end.type)) + ", which this provider does not convert");
    if (!end.shaped) return;
    const std::vector<std::int64_t> own = meta.application_shape();
    bool same = own.size() == end.dims.size();
    for (std::size_t i = 0; same && i < own.size(); ++i) same = own[i] < 0 || end.dims[i] < 0 || own[i] == end.dims[i];
    if (!same)
        throw ArgumentError(what + ": shape expected " + text_of(own) + " as compiled, found " + text_of(end.dims));
}

void check_names(const std::string& kind, std::vector<std::string> expected, const std::vector<End>& ends) {
    std::vector<std::string> found;
    for (const End& end : ends) found.push_back(end.name);
    std::sort(expected.begin(), expected.end());
    std::sort(found.begin(), found.end());
    if (expected != found)
        throw ArgumentError(kind + " expected " + list_of(expected) + " as compiled, found " + list_of(found));
}

}  // namespace

std::vector<End> inputs_of(const OrtApi& api, const OrtGraph* graph) {
    std::size_t count = 0;
    check(api, api.Graph_GetNumInputs(graph, &count));
    std::vector<const OrtValueInfo*> values(count);
    check(api, api.Graph_GetInputs(graph, values.data(), count));
    std::vector<End> ends;
    for (const OrtValueInfo* value : values) {
        bool constant = false, optional = false;
        check(api, api.ValueInfo_IsConstantInitializer(value, &constant));
        check(api, api.ValueInfo_IsOptionalGraphInput(value, &optional));
        if (constant) continue;
        ends.push_back(end_of(api, value));
        if (optional)
            throw ArgumentError("input '" + ends.back().name +
                                "' has a default that an application may replace, the build has it as a constant; take "
                                "it out of the model's inputs");
    }
    return ends;
}

std::vector<End> outputs_of(const OrtApi& api, const OrtGraph* graph) {
    std::size_t count = 0;
    check(api, api.Graph_GetNumOutputs(graph, &count));
    std::vector<const OrtValueInfo*> values(count);
    check(api, api.Graph_GetOutputs(graph, values.data(), count));
    std::vector<End> ends;
    for (const OrtValueInfo* value : values) ends.push_back(end_of(api, value));
    return ends;
}

std::vector<const OrtNode*> nodes_of(const OrtApi& api, const OrtGraph* graph) {
    std::size_t count = 0;
    check(api, api.Graph_GetNumNodes(graph, &count));
    std::vector<const OrtNode*> nodes(count);
    check(api, api.Graph_GetNodes(graph, nodes.data(), count));
    return nodes;
}

std::vector<std::string> input_names(const OrtApi& api, const OrtNode* node) {
    std::size_t count = 0;
    check(api, api.Node_GetNumInputs(node, &count));
    std::vector<const OrtValueInfo*> values(count);
    check(api, api.Node_GetInputs(node, values.data(), count));
    return names_of(api, values);
}

std::vector<std::string> output_names(const OrtApi& api, const OrtNode* node) {
    std::size_t count = 0;
    check(api, api.Node_GetNumOutputs(node, &count));
    std::vector<const OrtValueInfo*> values(count);
    check(api, api.Node_GetOutputs(node, values.data(), count));
    return names_of(api, values);
}

void check_ends(const OrtApi& api, const OrtGraph* graph, const Session& session) {
    const Program& program = session.program();
    const std::vector<End> inputs = inputs_of(api, graph), outputs = outputs_of(api, graph);
    check_names("inputs", program.inputs(), inputs);
    check_names("outputs", program.outputs(), outputs);
    for (const End& end : inputs) {
        const TensorMeta& meta = program.tensor(end.name);
        check_end(end, "input", meta, cpu::type_of(meta.dtype, "input '" + end.name + "'"));
    }
    for (const End& end : outputs) {
        const auto found = std::find(program.outputs().begin(), program.outputs().end(), end.name);
        const auto index = static_cast<std::size_t>(found - program.outputs().begin());
        check_end(end, "output", program.tensor(end.name), session.output_prototype(index).type);
    }
}

}  // namespace npuforge::ort
