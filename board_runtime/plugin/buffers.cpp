// See buffers.hpp.
#include "buffers.hpp"

#include <cstring>
#include <stdexcept>

namespace npuforge::plugin {

namespace {

std::string describe(const xir::Tensor& tensor) {
    return "tensor " + tensor.get_name() + " (" + tensor.get_data_type().to_string() + ")";
}

std::size_t elements(const std::vector<std::int32_t>& shape, const xir::Tensor& tensor) {
    std::size_t product = 1;
    for (const std::int32_t dim : shape) {
        if (dim <= 0) {
            throw std::invalid_argument(describe(tensor) + ": dimension " + std::to_string(dim) +
                                        ", expected a positive number");
        }
        product *= static_cast<std::size_t>(dim);
    }
    return product;
}

bool on_host(const vart::TensorBuffer& buffer) {
    const auto location = buffer.get_location();
    return location == vart::TensorBuffer::location_t::HOST_VIRT ||
           location == vart::TensorBuffer::location_t::HOST_PHY;
}

}  // namespace

Element element_of(const xir::Tensor& tensor) {
    const xir::DataType type = tensor.get_data_type();
    switch (type.type) {
        case xir::DataType::FLOAT:
            if (type.bit_width == 32) return {};
            break;
        case xir::DataType::BFLOAT:
            if (type.bit_width == 16) return {cpu::Type::kFloat32, true};
            break;
        case xir::DataType::INT:
        case xir::DataType::XINT:
            if (type.bit_width == 8) return {cpu::Type::kInt8};
            if (type.bit_width == 32) return {cpu::Type::kInt32};
            if (type.bit_width == 64) return {cpu::Type::kInt64};
            break;
        case xir::DataType::UINT:
        case xir::DataType::XUINT:
            if (type.bit_width == 8) return {cpu::Type::kUint8};
            break;
        default:
            break;
    }
    throw std::invalid_argument(describe(tensor) +
                                ": expected FLOAT32, BFLOAT16, (X)INT8, INT32, INT64 or (X)UINT8; convert the buffer");
}

HostBuffer::HostBuffer(const xir::Tensor* tensor)
    : vart::TensorBuffer(tensor), bytes_(elements(tensor->get_shape(), *tensor) * element_of(*tensor).bytes()) {}

std::pair<std::uint64_t, std::size_t> HostBuffer::data(const std::vector<std::int32_t> index) {
    const std::vector<std::int32_t> shape = get_tensor()->get_shape();
    std::size_t offset = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        const std::int32_t at = axis < index.size() ? index[axis] : 0;
        if (at < 0 || at >= shape[axis]) return {0, 0};
        offset = offset * static_cast<std::size_t>(shape[axis]) + static_cast<std::size_t>(at);
    }
    offset *= element_of(*get_tensor()).bytes();
    return {reinterpret_cast<std::uint64_t>(bytes_.data() + offset), bytes_.size() - offset};
}

BatchItem::BatchItem(vart::TensorBuffer& buffer, const std::string& name, int first, int count, bool input)
    : buffer_(&buffer), first_(first), count_(count) {
    const xir::Tensor& tensor = *buffer.get_tensor();
    std::vector<std::int32_t> shape = tensor.get_shape();
    native_.name = name;
    const Element element = element_of(tensor);
    native_.type = element.type;
    native_.bf16 = element.bf16;
    const std::size_t entries = static_cast<std::size_t>(shape.at(0));
    entry_bytes_ = elements(shape, tensor) / entries * element.bytes();
    native_.bytes = entry_bytes_ * static_cast<std::size_t>(count);
    shape[0] = count;
    native_.shape = cpu::Shape();
    for (const std::int32_t dim : shape) native_.shape.push(dim);

    if (on_host(buffer)) {
        if (input && buffer.get_location() == vart::TensorBuffer::location_t::HOST_PHY) {
            for (int entry = first; entry < first + count; ++entry) {
                buffer.sync_for_read(static_cast<std::uint64_t>(entry) * entry_bytes_, entry_bytes_);
            }
        }
        std::vector<std::int32_t> index(shape.size(), 0);
        index[0] = first;
        const auto [address, available] = buffer.data(index);
        if (address != 0 && available >= native_.bytes) {
            native_.data = reinterpret_cast<void*>(address);
            return;
        }
        for (index[0] = first; index[0] < first + count; ++index[0]) {
            const auto [entry, found] = buffer.data(index);
            if (entry != 0 && found >= entry_bytes_) continue;
            throw std::invalid_argument(describe(tensor) + ": entry " + std::to_string(index[0]) + ": expected " +
                                        std::to_string(entry_bytes_) + " bytes, data() gives " +
                                        std::to_string(entry == 0 ? 0 : found));
        }
    }
    copy_ = std::make_unique<char[]>(native_.bytes);
    native_.data = copy_.get();
    if (!input) return;
    for (int entry = 0; entry < count; ++entry) {
        buffer.copy_to_host(static_cast<std::size_t>(first + entry),
                            copy_.get() + static_cast<std::size_t>(entry) * entry_bytes_, entry_bytes_, 0);
    }
}

void BatchItem::flush() {
    for (int entry = 0; entry < count_; ++entry) {
        const auto batch = static_cast<std::size_t>(first_ + entry);
        if (copy_) {
            buffer_->copy_from_host(batch, copy_.get() + static_cast<std::size_t>(entry) * entry_bytes_, entry_bytes_,
                                    0);
        }
        if (buffer_->get_location() == vart::TensorBuffer::location_t::HOST_PHY) {
            buffer_->sync_for_write(batch * entry_bytes_, entry_bytes_);
        }
    }
}

}  // namespace npuforge::plugin
