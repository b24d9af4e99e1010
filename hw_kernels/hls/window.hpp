// Where the taps of a window lie: pixel coordinates and border reads, shared by convolution, depthwise and pooling.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

/// First source coordinate of output coordinate `out`; a tap adds tap * dilation. |result| < 2^25.
inline int32_t window_origin(uint32_t out, uint32_t stride, int32_t pad) {
    NPU_INLINE
    return (int32_t)(out * stride) - pad;
}

/// Whether (row, column) lies in the rows and columns held.
inline bool inside(int32_t row, int32_t column, uint32_t height, uint32_t width) {
    NPU_INLINE
    return row >= 0 && row < (int32_t)height && column >= 0 && column < (int32_t)width;
}

/// SRAM address of pixel (row, column), block 0. Invariant: `inside` holds, so the checked bounds hold.
/// \tparam I an instruction with the INPUT fields
template <class I>
inline uint32_t input_address(const I& i, int32_t row, int32_t column) {
    NPU_INLINE
    return i.in_addr + (uint32_t)row * i.in_row_stride + (uint32_t)column * i.in_pixel_stride;
}

/// SRAM address of output pixel (y, x), block 0. \tparam I an instruction with the OUTPUT fields
template <class I>
inline uint32_t output_address(const I& i, uint32_t y, uint32_t x) {
    NPU_INLINE
    return i.out_addr + y * i.out_row_stride + x * i.out_pixel_stride;
}

/// One word of the window: the map inside, the border word outside.
/// \tparam I an instruction with INPUT and INPUT_SIZE
template <class I>
inline void read_tap(const int8_t sram[][LANES], const I& i, int32_t row, int32_t column, uint32_t block,
                     const int8_t border[LANES], int8_t word[LANES]) {
    NPU_INLINE
    if (inside(row, column, i.in_h, i.in_w)) {
        sram_read(sram, input_address(i, row, column) + (uint32_t)LANES * block, word);
    } else {
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            word[lane] = border[lane];
        }
    }
}

}  // namespace hls
}  // namespace npuforge
