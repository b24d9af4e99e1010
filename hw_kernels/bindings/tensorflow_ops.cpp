// TensorFlow operator `NpuforgeRun`: any operator of the CPU partition by name, with its attributes as JSON. Shapes
// come from the operator's own rule; its kernel is the one of the runtime (hw_kernels/ops/<op>/cpu.hpp).
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "npuforge/cpu.hpp"
#include "npuforge/json.hpp"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

namespace cpu = npuforge::cpu;
using tensorflow::DataType;
using tensorflow::shape_inference::InferenceContext;

cpu::Type type_of(DataType type) {
    return type == tensorflow::DT_INT64  ? cpu::Type::kInt64
           : type == tensorflow::DT_BOOL ? cpu::Type::kBool
                                         : cpu::Type::kFloat32;
}

/// A prepared node: what both the shape function and the kernel need.
struct Prepared {
    npuforge::CpuNode meta;
    std::unique_ptr<cpu::NodeInfo> info;
    cpu::Kernel kernel;

    Prepared(const std::string& op, const std::string& attributes, int inputs, int outputs) {
        meta.name = op;
        meta.op = op;
        meta.attrs = npuforge::json::parse(attributes, "attributes");
        for (int i = 0; i < inputs; ++i) meta.inputs.push_back("x" + std::to_string(i));
        for (int i = 0; i < outputs; ++i) meta.outputs.push_back("y" + std::to_string(i));
        const cpu::Factory* factory = cpu::Registry::instance().find(op);
        if (!factory) throw npuforge::ArgumentError("operator " + op + " is not known to the CPU partition");
        info = std::make_unique<cpu::NodeInfo>(meta);
        kernel = (*factory)(*info);
    }
};

/// Tensors of one call with the pointers that `cpu::Args` wants.
struct Call {
    std::vector<cpu::Tensor> inputs, outputs;
    std::vector<const cpu::Tensor*> in;
    std::vector<cpu::Tensor*> out;

    Call(std::size_t input_count, std::size_t output_count) : inputs(input_count), outputs(output_count) {
        for (cpu::Tensor& t : inputs) in.push_back(&t);
        for (cpu::Tensor& t : outputs) out.push_back(&t);
    }
    cpu::Args args() { return {in.data(), in.size(), out.data(), out.size(), nullptr}; }
};

/// The output shapes by the operator's rule, with `size` for every dimension of the inputs that is not known yet.
std::vector<cpu::Shape> shapes_of(InferenceContext* c, const Prepared& node, const std::vector<DataType>& types,
                                  std::int64_t size, bool* values) {
    Call call(types.size(), static_cast<std::size_t>(c->num_outputs()));
    for (int i = 0; i < c->num_inputs(); ++i) {
        const auto shape = c->input(i);
        cpu::Tensor& tensor = call.inputs[static_cast<std::size_t>(i)];
        tensor.type = type_of(types[static_cast<std::size_t>(i)]);
        for (int d = 0; d < c->Rank(shape); ++d) {
            const auto dimension = c->Dim(shape, d);
            tensor.shape.push(c->ValueKnown(dimension) ? c->Value(dimension) : size);
        }
        if (tensor.type == cpu::Type::kFloat32) continue;
        const tensorflow::Tensor* value = c->input_tensor(i);
        if (value == nullptr) {
            *values = false;
        } else {
            tensor.data = const_cast<char*>(value->tensor_data().data());
            tensor.constant = true;
        }
    }
    node.kernel.shape(call.args());
    std::vector<cpu::Shape> found;
    for (const cpu::Tensor& output : call.outputs) found.push_back(output.shape);
    return found;
}

/// Sets the dimensions in which all of `candidates` agree, but not the one that only the data decide; nothing where
/// they differ in rank.
void set_common(InferenceContext* c, const cpu::Kernel& kernel,
                const std::vector<std::vector<cpu::Shape>>& candidates) {
    for (int i = 0; i < c->num_outputs(); ++i) {
        const cpu::Shape& first = candidates[0][static_cast<std::size_t>(i)];
        std::vector<tensorflow::shape_inference::DimensionHandle> dims;
        const int open = kernel.open_axis < 0 ? kernel.open_axis + first.rank : kernel.open_axis;
        for (int d = 0; d < first.rank; ++d)
            dims.push_back(kernel.dynamic && d == open ? c->UnknownDim() : c->MakeDim(first.dim[d]));
        bool one_rank = true;
        for (const std::vector<cpu::Shape>& other : candidates) {
            const cpu::Shape& shape = other[static_cast<std::size_t>(i)];
            one_rank = one_rank && shape.rank == first.rank;
            for (int d = 0; one_rank && d < first.rank; ++d)
                if (shape.dim[d] != first.dim[d]) dims[static_cast<std::size_t>(d)] = c->UnknownDim();
        }
        c->set_output(i, one_rank ? c->MakeShape(dims) : c->UnknownShape());
    }
}

/// Sizes that an unknown dimension is tried with. An output dimension in which every legal one of them agrees does not
/// depend on it: small ones show where a size limits, large ones where it is divided.
constexpr std::int64_t kTried[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 25, 48, 96, 240, 65536};

/// Output shapes by the operator's own rule. Dimensions that depend on unknown ones, and those that only the data
/// decide, stay unknown; whole shapes where the rank of an input is unknown.
absl::Status infer(InferenceContext* c) {
    std::string op, attributes;
    std::vector<DataType> types;
    TF_RETURN_IF_ERROR(c->GetAttr("op", &op));
    TF_RETURN_IF_ERROR(c->GetAttr("attributes", &attributes));
    TF_RETURN_IF_ERROR(c->GetAttr("Tin", &types));
    bool values = true;  // all integer inputs are known while tracing; TensorFlow asks again once it has them
    try {
        const Prepared node(op, attributes, c->num_inputs(), c->num_outputs());
        bool ranks = true, defined = true;
        for (int i = 0; i < c->num_inputs() && ranks; ++i) {
            ranks = c->RankKnown(c->input(i)) && c->Rank(c->input(i)) <= cpu::kMaxRank;
            defined = defined && c->FullyDefined(c->input(i));
        }
        if (!ranks) return tensorflow::shape_inference::UnknownShape(c);
        if (defined) {
            set_common(c, node.kernel, {shapes_of(c, node, types, 0, &values)});
            return absl::OkStatus();
        }
        std::vector<std::vector<cpu::Shape>> candidates;
        for (const std::int64_t size : kTried) {
            try {
                candidates.push_back(shapes_of(c, node, types, size, &values));
            } catch (const std::exception&) {
                continue;  // no legal size
            }
        }
        if (candidates.size() < 2) return tensorflow::shape_inference::UnknownShape(c);
        set_common(c, node.kernel, candidates);
    } catch (const std::exception& error) {
        return values ? absl::InvalidArgumentError(error.what()) : tensorflow::shape_inference::UnknownShape(c);
    }
    return absl::OkStatus();
}

class NpuforgeRun : public tensorflow::OpKernel {
  public:
    explicit NpuforgeRun(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
        std::string op, attributes;
        OP_REQUIRES_OK(context, context->GetAttr("op", &op));
        OP_REQUIRES_OK(context, context->GetAttr("attributes", &attributes));
        try {
            node_ = std::make_unique<Prepared>(op, attributes, context->num_inputs(), context->num_outputs());
        } catch (const std::exception& error) {
            context->CtxFailure(absl::InvalidArgumentError(error.what()));
        }
    }

    void Compute(tensorflow::OpKernelContext* context) override {
        try {
            run(context);
        } catch (const std::exception& error) {
            context->CtxFailure(absl::InvalidArgumentError(error.what()));
        }
    }

  private:
    void run(tensorflow::OpKernelContext* context) {
        Call call(static_cast<std::size_t>(context->num_inputs()), static_cast<std::size_t>(context->num_outputs()));
        for (int i = 0; i < context->num_inputs(); ++i) {
            const tensorflow::Tensor& given = context->input(i);
            cpu::Tensor& tensor = call.inputs[static_cast<std::size_t>(i)];
            tensor.type = type_of(given.dtype());
            for (int d = 0; d < given.dims(); ++d) tensor.shape.push(given.dim_size(d));
            tensor.data = const_cast<char*>(given.tensor_data().data());
            tensor.constant = given.dtype() != tensorflow::DT_FLOAT;  // readable when shapes are computed
        }
        cpu::Args args = call.args();
        node_->kernel.shape(args);
        std::vector<tensorflow::Tensor> made(call.outputs.size());
        for (std::size_t i = 0; i < made.size(); ++i) {
            OP_REQUIRES_OK(context, context->allocate_temp(context->expected_output_dtype(static_cast<int>(i)),
                                                           shape_of(call.outputs[i].shape), &made[i]));
            call.outputs[i].data = const_cast<char*>(made[i].tensor_data().data());
        }
        const std::size_t bytes = node_->kernel.scratch ? node_->kernel.scratch(args) : 0;
        const std::unique_ptr<std::uint8_t[]> scratch(new std::uint8_t[bytes + 16]);
        args.scratch = scratch.get();
        if (node_->kernel.alias)
            std::memcpy(call.outputs[0].data, call.inputs[0].data, call.outputs[0].bytes());
        else
            node_->kernel.run(args);
        for (std::size_t i = 0; i < made.size(); ++i) {
            const tensorflow::TensorShape real = shape_of(call.outputs[i].shape);
            tensorflow::Tensor flat, result;  // a dynamic operator wrote fewer elements, without gaps
            const bool fits = flat.CopyFrom(made[i], tensorflow::TensorShape({made[i].NumElements()})) &&
                              result.CopyFrom(flat.Slice(0, real.num_elements()), real);
            OP_REQUIRES(context, fits, absl::InternalError("the result does not fit its memory"));
            context->set_output(static_cast<int>(i), result);
        }
    }

    static tensorflow::TensorShape shape_of(const cpu::Shape& shape) {
        tensorflow::TensorShape result;
        for (int d = 0; d < shape.rank; ++d) result.AddDim(shape.dim[d]);
        return result;
    }

    std::unique_ptr<Prepared> node_;
};

REGISTER_OP("NpuforgeRun")
    .Input("inputs: Tin")
    .Output("outputs: Tout")
    .Attr("Tin: list({float, int64, bool}) >= 1")
    .Attr("Tout: list({float, int64, bool}) >= 1")
    .Attr("op: string")
    .Attr("attributes: string")
    .SetShapeFn(infer);

REGISTER_KERNEL_BUILDER(Name("NpuforgeRun").Device(tensorflow::DEVICE_CPU), NpuforgeRun);

}  // namespace
