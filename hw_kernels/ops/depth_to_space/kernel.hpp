// DepthToSpace on int8 and bf16: channels to the pixels of a block, in either of ONNX's orders.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t REORG_BLOCK_MAX = 16;
constexpr int32_t REORG_SIDE_MAX = 1 << 10;

/// y [height*block][width*block][out_lanes] of x [height][width][in_lanes]; lanes from `channels` on are written as 0.
/// `column_row`: the channel is the slower index (CRD), else the place in the block (DCR). False, with nothing written,
/// where a size is out of range.
/// \tparam MAX_CHANNELS output channels at most \tparam T bits are moved, not looked at
template <int MAX_CHANNELS, class T>
inline bool depth_to_space_lanes(const T x[], int32_t in_lanes, int32_t height, int32_t width, int32_t channels,
                                 int32_t block, int32_t column_row, int32_t out_lanes, T y[]) {
    static_assert(MAX_CHANNELS <= 1 << 10, "indices have 31 bits up to 2^10 channels of 2^20 pixels");
    if (height < 1 || height > REORG_SIDE_MAX || width < 1 || width > REORG_SIDE_MAX) return false;
    if (channels < 1 || channels > MAX_CHANNELS || block < 1 || block > REORG_BLOCK_MAX) return false;
    if (in_lanes < channels * block * block || out_lanes < channels) return false;
    if ((int64_t)height * width * in_lanes > ((int64_t)1 << 30)) return false;
    if ((int64_t)height * width * block * block * out_lanes > ((int64_t)1 << 30)) return false;
    for (int32_t row = 0; row < height * block; ++row) {
        NPU_TRIPCOUNT(1, REORG_SIDE_MAX * REORG_BLOCK_MAX)
        const int32_t from_row = row / block, in_row = row - from_row * block;
        for (int32_t column = 0; column < width * block; ++column) {
            NPU_TRIPCOUNT(1, REORG_SIDE_MAX * REORG_BLOCK_MAX)
            const int32_t from_column = column / block, place = in_row * block + column - from_column * block;
            const int32_t source = (from_row * width + from_column) * in_lanes;
            for (int32_t channel = 0; channel < out_lanes; ++channel) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, MAX_CHANNELS)
                const int32_t depth = column_row != 0 ? channel * block * block + place : place * channels + channel;
                y[(row * width * block + column) * out_lanes + channel] = channel < channels ? x[source + depth] : (T)0;
            }
        }
    }
    return true;
}

/// The same without pad lanes.
template <int MAX_CHANNELS>
inline bool depth_to_space(const int8_t x[], int32_t height, int32_t width, int32_t channels, int32_t block,
                           int32_t column_row, int8_t y[]) {
    const bool small = channels >= 1 && channels <= MAX_CHANNELS && block >= 1 && block <= REORG_BLOCK_MAX;
    const int32_t depth = small ? channels * block * block : 0;
    return depth_to_space_lanes<MAX_CHANNELS, int8_t>(x, depth, height, width, channels, block, column_row, channels,
                                                      y);
}

}  // namespace hls
}  // namespace npuforge
