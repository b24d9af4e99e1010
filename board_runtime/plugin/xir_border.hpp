// What the bytes of a tensor at the NPU's border mean, from the attributes that our writer gives to tensors and to
// Quantize and Dequantize. Owns no arithmetic: that is border.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>
#include <xir/tensor/tensor.hpp>

#include "npuforge/border.hpp"
#include "npuforge/cpu.hpp"

namespace npuforge::plugin {

/// Whether the tensor is in the NPU's form, N, H, W, C: XINT8 or BFLOAT16.
bool at_border(const xir::Tensor& tensor);

/// real = (q - zero_point) * scale, or (q + 128 - mean) * scale; one value, or one for each channel.
struct BorderValues {
    std::vector<double> scale, mean;
    std::vector<std::int32_t> zero_point;
    bool bf16 = false;  ///< the value itself: no scales
};

/// A tensor of this shape, channels last, contiguous: all dimensions but the last as one row of pixels. Throws
/// std::invalid_argument that begins with `where` where the numbers of values do not fit.
NpuTensor border_tensor(const std::string& where, const cpu::Shape& shape, BorderValues values);

/// The same of a tensor `at_border` with its own attributes.
NpuTensor border_tensor(const xir::Tensor& tensor);

}  // namespace npuforge::plugin
