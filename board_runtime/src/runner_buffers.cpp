// See runner_buffers.hpp.
#include "runner_buffers.hpp"

#include "npuforge/open_rows.hpp"
#include "npuforge/whole_numbers.hpp"
#include "session_context.hpp"

namespace npuforge {

using cpu::Shape;
using cpu::Type;

namespace {

std::string label(const RunnerTensor& tensor, bool input) {
    return std::string(input ? "input" : "output") + " '" + tensor.name + "'";
}

const char* name_of(const TensorBuffer& buffer) { return buffer.bf16 ? "bfloat16" : cpu::type_name(buffer.type); }

[[noreturn]] void wrong_type(const RunnerTensor& tensor, const TensorBuffer& given, bool input) {
    std::string expected = tensor.border ? "float32" : cpu::type_name(tensor.type);
    if (tensor.border) expected += tensor.npu->bf16 ? " or bfloat16" : " or int8";
    if (tensor.border && input && tensor.npu->is_image()) expected += " or uint8 pixels";
    throw ArgumentError(label(tensor, input) + ": type expected " + expected + ", found " + name_of(given));
}

// The shape of a buffer as the tensor has it: XIR has no scalars, and the file gives a tensor that does not begin with
// the batch an axis of 1 in front.
Shape declared_shape(const RunnerTensor& tensor, const Shape& given) {
    if (tensor.dims.empty() && given.count() == 1) return {};
    if (static_cast<std::size_t>(given.rank) != tensor.dims.size() + 1 || given.dim[0] != 1) return given;
    Shape shape;
    for (int axis = 1; axis < given.rank; ++axis) shape.push(given.dim[axis]);
    return shape;
}

}  // namespace

void JobBuffer::take(const RunnerTensor& tensor, const TensorBuffer& given, bool nhwc, Of of, bool input) {
    if (!given.data) throw ArgumentError(label(tensor, input) + ": the buffer has no memory");
    const std::size_t needed = static_cast<std::size_t>(given.shape.count()) * given.element_bytes();
    if (given.bytes < needed) {
        throw ArgumentError(label(tensor, input) + ": expected " + std::to_string(needed) + " bytes, found " +
                            std::to_string(given.bytes));
    }
    tensor_ = &tensor;
    data_ = given.data;
    bytes_ = given.bytes;
    type_ = given.type;
    bf16_ = given.bf16;
    shape_ = declared_shape(tensor, given.shape);
    nhwc_ = nhwc;
    form_ = Form::kDirect;
    const bool real = type_ == Type::kFloat32;
    const bool of_border =
        tensor.npu && (real ? !bf16_ || tensor.npu->bf16 : type_ == Type::kInt8 && !tensor.npu->bf16);
    if (of != Of::kCpu) {  // the session converts
        if (of == Of::kNpu && bf16_ && of_border)
            form_ = Form::kBf16;
        else if (bf16_ || (!input && !(of == Of::kNpu ? of_border : type_ == tensor.type)))
            wrong_type(tensor, given, input);
        return;
    }
    // What a CPU partition gives the NPU may be asked for as the NPU reads it, whatever the declared form.
    if (tensor.border || (tensor.type != type_ && tensor.npu && type_ == Type::kInt8)) {
        if (!of_border) wrong_type(tensor, given, input);
        form_ = Form::kBorder;
        const Shape own = session_shape();
        if (input) expect_shape(tensor.name, nhwc ? nhwc_shape(own) : own, shape_);
        if (shape_.count() != own.count()) {
            throw ArgumentError(label(tensor, input) + ": expected " + std::to_string(own.count()) +
                                " elements, found " + std::to_string(shape_.count()));
        }
        if (flat_.lanes.empty()) flat_ = contiguous(*tensor.npu);
        return;
    }
    if (bf16_) wrong_type(tensor, given, input);
    if (type_ == tensor.type) return;
    const bool truth = tensor.type == Type::kBool && type_ == Type::kUint8;
    if (!real && !truth) wrong_type(tensor, given, input);
    if (real || input) form_ = Form::kNumber;  // the bytes of a bool result are 0 or 1
}

Shape JobBuffer::session_shape() const {
    Shape shape;
    for (const std::int32_t dim : tensor_->dims) shape.push(dim);
    if (tensor_->nhwc && shape.rank == 4) return {shape.dim[0], shape.dim[3], shape.dim[1], shape.dim[2]};
    return shape;
}

InputBuffer JobBuffer::converted_input() {
    const auto count = static_cast<std::size_t>(shape_.count());
    if (form_ == Form::kNumber) {
        memory_.resize(count * cpu::type_bytes(tensor_->type));
        if (type_ == Type::kUint8)  // of a bool tensor
            for (std::size_t i = 0; i < count; ++i) memory_[i] = static_cast<const std::uint8_t*>(data_)[i] != 0;
        else
            whole_numbers(tensor_->type, tensor_->name, static_cast<const float*>(data_), memory_.data(), count);
        if (tensor_->type == Type::kBool && is_open({tensor_->dims.begin(), tensor_->dims.end()})) keep_no_truth(count);
        return {memory_.data(), tensor_->type, shape_, nhwc_, tensor_->filling};
    }
    const auto* values = static_cast<const float*>(data_);
    if (bf16_) {
        real_.resize(count);
        widen_bf16(static_cast<const std::uint16_t*>(data_), real_.data(), count);
        values = real_.data();
    }
    if (form_ == Form::kBf16) return {values, Type::kFloat32, shape_, nhwc_};
    memory_.resize(count * sizeof(float));
    auto* plain = reinterpret_cast<float*>(memory_.data());
    if (type_ == Type::kInt8) {
        dequantise_bytes(flat_, static_cast<const std::int8_t*>(data_), strides(nhwc_), plain);
    } else {
        fixed_.resize(count * (flat_.bf16 ? 2 : 1));
        quantise(flat_, tensor_->name, values, strides(nhwc_), fixed_.data());
        dequantise(flat_, fixed_.data(), plain, strides(false));
    }
    return {plain, Type::kFloat32, session_shape(), false};
}

// Where no rows are, the session finds none.
void JobBuffer::keep_no_truth(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const bool none = type_ == Type::kUint8 ? static_cast<const std::uint8_t*>(data_)[i] == kNoTruth
                                                : static_cast<const float*>(data_)[i] == kNoTruth;
        if (none) memory_[i] = kNoTruth;
    }
}

OutputBuffer JobBuffer::session_output() {
    const Type type = form_ == Form::kNumber ? tensor_->type : Type::kFloat32;
    memory_.resize(static_cast<std::size_t>(shape_.count()) * cpu::type_bytes(type));
    return {memory_.data(), memory_.size(), type, shape_, form_ != Form::kBorder && nhwc_, tensor_->filling};
}

void JobBuffer::fill_from(const OutputBuffer& session) {
    const auto count = static_cast<std::size_t>(session.shape.count());
    if (form_ == Form::kNumber)
        return whole_floats(tensor_->type, tensor_->name, session.data, static_cast<float*>(data_), count);
    const auto* plain = static_cast<const float*>(session.data);
    if (form_ == Form::kBf16) return narrow_bf16(plain, static_cast<std::uint16_t*>(data_), count);
    fixed_.resize(count * (flat_.bf16 ? 2 : 1));
    quantise(flat_, tensor_->name, plain, strides(session.nhwc), fixed_.data());
    if (type_ == Type::kInt8) return load_bytes(flat_, fixed_.data(), static_cast<std::int8_t*>(data_), strides(nhwc_));
    if (!bf16_) return dequantise(flat_, fixed_.data(), static_cast<float*>(data_), strides(nhwc_));
    real_.resize(count);
    dequantise(flat_, fixed_.data(), real_.data(), strides(nhwc_));
    narrow_bf16(real_.data(), static_cast<std::uint16_t*>(data_), count);
}

}  // namespace npuforge
