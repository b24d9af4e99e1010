// DepthToSpace on bytes: channels to the pixels of a block, in either of ONNX's orders.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t REORG_BLOCK_MAX = 16;
constexpr int32_t REORG_SIDE_MAX = 1 << 10;

/// y [height*block][width*block][channels] of x [height][width][channels*block^2]. `column_row`: the channel is the
/// slower index (CRD), else the place in the block (DCR). False, with nothing written, where a size is out of range.
/// \tparam MAX_CHANNELS output channels at most
template <int MAX_CHANNELS>
inline bool depth_to_space(const int8_t x[], int32_t height, int32_t width, int32_t channels, int32_t block,
                           int32_t column_row, int8_t y[]) {
    static_assert(MAX_CHANNELS <= 1 << 10, "indices have 31 bits up to 2^10 channels of 2^20 pixels");
    if (height < 1 || height > REORG_SIDE_MAX || width < 1 || width > REORG_SIDE_MAX) return false;
    if (channels < 1 || channels > MAX_CHANNELS || block < 1 || block > REORG_BLOCK_MAX) return false;
    if ((int64_t)height * width * block * block * channels > ((int64_t)1 << 30)) return false;
    for (int32_t row = 0; row < height * block; ++row) {
        NPU_TRIPCOUNT(1, REORG_SIDE_MAX * REORG_BLOCK_MAX)
        const int32_t from_row = row / block, in_row = row - from_row * block;
        for (int32_t column = 0; column < width * block; ++column) {
            NPU_TRIPCOUNT(1, REORG_SIDE_MAX * REORG_BLOCK_MAX)
            const int32_t from_column = column / block, place = in_row * block + column - from_column * block;
            const int32_t source = (from_row * width + from_column) * channels * block * block;
            for (int32_t channel = 0; channel < channels; ++channel) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, MAX_CHANNELS)
                const int32_t depth = column_row != 0 ? channel * block * block + place : place * channels + channel;
                y[(row * width * block + column) * channels + channel] = x[source + depth];
            }
        }
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
