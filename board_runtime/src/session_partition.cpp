// Runs one partition alone, for runners of subgraphs: those of an NPU partition as float32 or as the NPU's int8.
#include <cstring>

#include "npuforge/border.hpp"
#include "npuforge/open_rows.hpp"
#include "npuforge/session.hpp"
#include "session_context.hpp"

namespace npuforge {

using cpu::Shape;
using cpu::Tensor;
using cpu::Type;

void Session::run_partition(std::size_t partition, const InputBuffer* inputs, std::size_t input_count,
                            OutputBuffer* outputs, std::size_t output_count) {
    if (partition >= program_->partitions().size())
        throw ArgumentError("partition: expected below " + std::to_string(program_->partitions().size()) + ", found " +
                            std::to_string(partition));
    const PartitionMeta& meta = program_->partitions()[partition];
    Lease lease(*this);
    if (input_count != meta.inputs.size() || output_count != meta.outputs.size())
        throw ArgumentError("partition " + std::to_string(partition) + ": expected " +
                            std::to_string(meta.inputs.size()) + " inputs and " + std::to_string(meta.outputs.size()) +
                            " outputs, found " + std::to_string(input_count) + " and " + std::to_string(output_count));
    Context& context = lease.context();
    for (std::size_t i = 0; i < input_count; ++i) {
        if (meta.npu)
            store_partition_input(context, meta.inputs[i], inputs[i]);
        else
            copy_partition_input(context, meta.inputs[i], inputs[i]);
    }
    if (meta.npu)
        run_npu(context, partition, {});
    else
        plan_.run(context.bindings, partition, context.arena.data());
    for (std::size_t i = 0; i < output_count; ++i) {
        const std::string& name = meta.outputs[i];
        if (meta.npu) {
            load_partition_output(context, name, outputs[i]);
            continue;
        }
        const Shape room = outputs[i].shape;
        write_output(context, name, outputs[i]);
        if (is_open(program_->tensor(name).shape)) spread_rows(name, outputs[i], room);
    }
    lease.done();
}

// One input of an NPU partition alone: float32, int8, or pixels.
void Session::store_partition_input(Context& context, const std::string& name, const InputBuffer& input) const {
    const NpuTensor& t = *program_->tensor(name).npu;
    const bool nhwc = input.nhwc || program_->tensor(name).nhwc || input.type == Type::kUint8;
    const Shape own(program_->tensor(name).shape);
    expect_shape(name, nhwc ? nhwc_shape(own) : own, input.shape);
    const MapStrides strides = nhwc ? MapStrides::nhwc(t) : MapStrides::nchw(t);
    if (input.type == Type::kFloat32)
        quantise(t, name, static_cast<const float*>(input.data), strides, context.pool.data());
    else if (input.type == Type::kInt8 && !t.bf16)
        store_bytes(t, static_cast<const std::int8_t*>(input.data), strides, context.pool.data());
    else if (input.type == Type::kUint8 && t.is_image())
        store_pixels(t, static_cast<const std::uint8_t*>(input.data), strides, context.pool.data());
    else
        throw ArgumentError("input '" + name + "': type expected float32" + (t.bf16 ? "" : " or int8") +
                            (t.is_image() ? " or uint8 pixels" : "") + ", found " + cpu::type_name(input.type));
}

void Session::load_partition_output(Context& context, const std::string& name, OutputBuffer& output) const {
    const NpuTensor& t = *program_->tensor(name).npu;
    const Shape own(program_->tensor(name).shape);
    output.shape = output.nhwc ? nhwc_shape(own) : own;
    const MapStrides strides = output.nhwc ? MapStrides::nhwc(t) : MapStrides::nchw(t);
    if (output.type != Type::kFloat32 && (output.type != Type::kInt8 || t.bf16))
        throw ArgumentError("output '" + name + "': type expected float32" + (t.bf16 ? "" : " or int8") + ", found " +
                            std::string(cpu::type_name(output.type)));
    const std::size_t bytes = static_cast<std::size_t>(own.count()) * cpu::type_bytes(output.type);
    if (!output.data || output.capacity < bytes)
        throw ArgumentError("output '" + name + "': expected room for " + std::to_string(bytes) + " bytes, found " +
                            std::to_string(output.data ? output.capacity : 0));
    if (output.type == Type::kFloat32)
        dequantise(t, context.pool.data(), static_cast<float*>(output.data), strides);
    else
        load_bytes(t, context.pool.data(), static_cast<std::int8_t*>(output.data), strides);
}

// One input of a CPU partition alone.
void Session::copy_partition_input(Context& context, const std::string& name, const InputBuffer& input) const {
    const int index = plan_.find(name);
    if (index < 0) throw ArgumentError("input '" + name + "' is not read by the CPU partition");
    Tensor& tensor = context.bindings.tensors[static_cast<std::size_t>(index)];
    if (tensor.constant) return;
    expect_type(name, tensor.type, input.type);
    const Shape& largest = plan_.largest(index);
    expect_shape(name, input.nhwc ? nhwc_shape(largest) : largest, input.shape);
    const bool transposed = input.nhwc && largest.rank == 4;
    if (const auto& declared = program_->tensor(name).shape; is_open(declared)) {
        if (transposed) throw ArgumentError("input '" + name + "': expected as N, C, H, W");
        tensor.shape = used_rows(tensor.type, input.data, largest, declared, input.filling);
        if (!plan_.in_arena(index)) {  // a view: who computes it points it elsewhere
            std::vector<std::uint8_t>& rows = context.rows[index];
            rows.resize(std::max<std::size_t>(tensor.bytes(), 1));
            tensor.data = rows.data();
        }
        gather_rows(tensor.type, input.data, largest, tensor.shape, tensor.as<std::uint8_t>());
        return;
    }
    if (!plan_.in_arena(index)) {
        if (transposed) throw ArgumentError("input '" + name + "': expected as N, C, H, W");
        tensor.data = const_cast<void*>(input.data);  // kernels never write their inputs
    } else if (transposed) {
        const std::int64_t map = tensor.shape.dim[2] * tensor.shape.dim[3];
        transpose_map(tensor.type, input.data, tensor.data, tensor.shape.dim[0], map, tensor.shape.dim[1]);
    } else {
        std::memcpy(tensor.data, input.data, tensor.bytes());
    }
}

}  // namespace npuforge
