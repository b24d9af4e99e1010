// Drives the generated prototypes and AI CPU kernels as CANN does, on the stand-in: shape function, then kernel.
#include <algorithm>
#include <cstring>

#include "npuforge_aicpu_kernels.cc"
#include "npuforge_aicpu_proto.cc"

/// types: CANN's. values: of all attributes. Outputs go to out[i] with room for `room` bytes; out_dims [outputs][8].
/// Returns 0, else the step that failed.
extern "C" int run_operator(const char* type, int fields, const char** names, const int* is_float, const int* lengths,
                            const double* values, int inputs, const int* in_types, const int* ranks,
                            const std::int64_t* dims, void** data, const std::int64_t* sizes, int outputs,
                            std::int64_t room, void** out, std::int64_t* out_dims, int* out_ranks, int* out_types) {
    ge::Operator op;
    aicpu::CpuKernelContext context;
    for (int f = 0; f < fields; values += lengths[f], ++f) {
        aicpu::AttrValue& value = context.attributes[names[f]];
        if (is_float[f])
            value.floats.assign(values, values + lengths[f]), op.floats[names[f]] = value.floats;
        else
            value.ints.assign(values, values + lengths[f]), op.ints[names[f]] = value.ints;
    }
    const ge::Prototype& prototype = ge::prototypes().at(type);
    if (static_cast<int>(prototype.inputs.size()) != inputs || static_cast<int>(prototype.outputs.size()) != outputs ||
        static_cast<int>(prototype.attributes.size()) != fields)
        return 1;
    for (int i = 0; i < inputs; dims += ranks[i], ++i) {
        const std::vector<std::int64_t> shape(dims, dims + ranks[i]);
        ge::TensorDesc& desc = op.tensors[prototype.inputs[i]];
        desc.SetShape(ge::Shape(shape));
        desc.SetDataType(static_cast<ge::DataType>(in_types[i]));
        aicpu::Tensor tensor;
        tensor.shape->dims = shape;
        tensor.type = static_cast<aicpu::DataType>(in_types[i]);
        tensor.data = data[i];
        tensor.size = static_cast<std::uint64_t>(sizes[i]);
        context.inputs.push_back(tensor);
    }
    for (const std::string& name : prototype.outputs) op.tensors[name];
    if (ge::shape_functions().at(type)(op) != ge::GRAPH_SUCCESS) return 2;
    for (int i = 0; i < outputs; ++i) {
        const ge::TensorDesc& desc = op.tensors.at(prototype.outputs[i]);
        aicpu::Tensor tensor;
        tensor.shape->dims = desc.GetShape().GetDims();
        tensor.type = static_cast<aicpu::DataType>(desc.GetDataType());
        tensor.data = out[i];
        tensor.size = static_cast<std::uint64_t>(room);
        const auto& dims = tensor.shape->dims;
        if (!desc.range.empty() && std::count(dims.begin(), dims.end(), ge::UNKNOWN_DIM) != 1) return 3;
        context.outputs.push_back(tensor);
    }
    if (aicpu::kernels().at(type)()->Compute(context) != 0) return 4;
    for (int i = 0; i < outputs; ++i) {
        const aicpu::Tensor& tensor = context.outputs[i];
        out_types[i] = tensor.type;
        out_ranks[i] = static_cast<int>(tensor.shape->dims.size());
        std::copy(tensor.shape->dims.begin(), tensor.shape->dims.end(), out_dims + 8 * i);
    }
    return 0;
}
