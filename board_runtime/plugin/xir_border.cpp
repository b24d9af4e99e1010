// See xir_border.hpp.
#include "xir_border.hpp"

#include <any>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace npuforge::plugin {

namespace {

template <typename T>
T attribute(const xir::Tensor& tensor, const std::string& key) {
    if (tensor.has_attr(key)) {
        const xir::any value = tensor.get_attr(key);
        if (const T* typed = std::any_cast<T>(&value)) return *typed;
    }
    throw std::invalid_argument("tensor " + tensor.get_name() + ": no attribute " + key +
                                "; compile the network again");
}

}  // namespace

bool at_border(const xir::Tensor& tensor) {
    const xir::DataType type = tensor.get_data_type();
    return (type.type == xir::DataType::XINT && type.bit_width == 8) ||
           (type.type == xir::DataType::BFLOAT && type.bit_width == 16);
}

NpuTensor border_tensor(const std::string& where, const cpu::Shape& shape, BorderValues values) {
    NpuTensor border;
    const std::int64_t channels = shape.rank ? shape.dim[shape.rank - 1] : 1;
    const auto count = static_cast<std::size_t>(channels);
    border.h = 1;
    border.c = static_cast<int>(channels);
    border.w = static_cast<int>(shape.count() / channels);
    border.bf16 = values.bf16;
    border.lanes.resize(count);
    border.scale = values.bf16 ? std::vector<double>{1.0} : std::move(values.scale);
    border.zero_point = values.bf16 ? std::vector<std::int32_t>{0} : std::move(values.zero_point);
    border.image_mean = std::move(values.mean);
    for (auto* list : {&border.scale, &border.image_mean}) {
        if (list->size() == 1) list->resize(count, list->front());
    }
    if (border.zero_point.size() == 1) border.zero_point.resize(count, border.zero_point.front());
    if (border.scale.size() != count || border.zero_point.size() != count ||
        (border.is_image() && border.image_mean.size() != count)) {
        throw std::invalid_argument(where + ": expected one scale and zero_point for each of " +
                                    std::to_string(channels) + " channels");
    }
    return contiguous(border);
}

NpuTensor border_tensor(const xir::Tensor& tensor) {
    BorderValues values;
    if (tensor.get_data_type().type == xir::DataType::BFLOAT) {
        values.bf16 = true;
    } else if (tensor.has_attr("fix_point")) {
        values.scale = {std::ldexp(1.0, -attribute<std::int32_t>(tensor, "fix_point"))};
        values.zero_point = {0};
    } else {
        values.scale = attribute<std::vector<double>>(tensor, "npuforge_scale");
        values.zero_point = attribute<std::vector<std::int32_t>>(tensor, "npuforge_zero_point");
        if (tensor.has_attr("npuforge_image_mean"))
            values.mean = attribute<std::vector<double>>(tensor, "npuforge_image_mean");
    }
    cpu::Shape shape;
    for (const std::int32_t dim : tensor.get_shape()) shape.push(dim);
    return border_tensor("tensor " + tensor.get_name(), shape, std::move(values));
}

}  // namespace npuforge::plugin
