// See fused_model.hpp.
#include "fused_model.hpp"

#include <algorithm>
#include <cstring>

#include "hw_kernels/bindings/onnxruntime_values.hpp"

namespace npuforge::ort {

FusedModel::FusedModel(const OrtApi& api, std::shared_ptr<Session> session, const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs)
    : api_(api), session_(std::move(session)) {
    const Program& program = session_->program();
    for (const std::string& name : program.inputs()) {
        const auto found = std::find(inputs.begin(), inputs.end(), name);
        if (found == inputs.end())
            throw ArgumentError("input '" + name +
                                "' is used by no node that is left after ONNX Runtime's own rewriting");
        inputs_.push_back(static_cast<std::size_t>(found - inputs.begin()));
    }
    for (std::size_t i = 0; i < program.outputs().size(); ++i) {
        const TensorMeta& meta = program.tensor(program.outputs()[i]);
        const auto found = std::find(outputs.begin(), outputs.end(), meta.name);
        Output output;
        output.position = static_cast<std::size_t>(found - outputs.begin());
        output.wanted = found != outputs.end();
        output.dynamic = std::any_of(meta.shape.begin(), meta.shape.end(), [](std::int64_t d) { return d < 0; });
        output.shape = output.dynamic ? session_->output_prototype(i).shape : cpu::Shape(meta.application_shape());
        output.bytes = session_->output_prototype(i).bytes();
        outputs_.push_back(output);
    }
}

void* FusedModel::place(OrtKernelContext* context, const Output& output, const cpu::Shape& shape) const {
    OrtValue* value = nullptr;
    const auto rank = static_cast<std::size_t>(shape.rank);
    check(api_, api_.KernelContext_GetOutput(context, output.position, shape.dim, rank, &value));
    void* data = nullptr;
    check(api_, api_.GetTensorMutableData(value, &data));
    return data;
}

void FusedModel::compute(OrtKernelContext* context) const {
    const Program& program = session_->program();
    std::vector<InputBuffer> inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const OrtValue* value = nullptr;
        check(api_, api_.KernelContext_GetInput(context, inputs_[i], &value));
        const cpu::Tensor tensor = tensor_of(api_, value, "input '" + program.inputs()[i] + "'");
        inputs.push_back({tensor.data, tensor.type, tensor.shape, false});
    }
    std::vector<OutputBuffer> outputs(outputs_.size());
    std::vector<std::vector<std::uint8_t>> own(outputs_.size());  // of results that are not wanted or of unknown size
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        outputs[i].capacity = outputs_[i].bytes;
        if (outputs_[i].wanted && !outputs_[i].dynamic) {
            outputs[i].data = place(context, outputs_[i], outputs_[i].shape);
            continue;
        }
        own[i].resize(outputs_[i].bytes);
        outputs[i].data = own[i].data();
    }
    session_->run(inputs.data(), inputs.size(), outputs.data(), outputs.size());
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        if (!outputs_[i].wanted) continue;
        const cpu::Shape& shape = outputs[i].shape;
        if (!outputs_[i].dynamic) {
            if (shape.count() != outputs_[i].shape.count())
                throw Error("output '" + program.outputs()[i] + "': shape expected " + outputs_[i].shape.text() +
                            ", found " + shape.text());
            continue;
        }
        void* target = place(context, outputs_[i], shape);
        const std::size_t bytes = static_cast<std::size_t>(shape.count()) * cpu::type_bytes(outputs[i].type);
        if (bytes) std::memcpy(target, own[i].data(), bytes);
    }
}

}  // namespace npuforge::ort
