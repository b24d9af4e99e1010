// UnalignNhwc16 on int8 and bf16: pixels of 16-lane blocks to planes; pad lanes are dropped.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t UNALIGN_MAX_PIXELS = 1 << 24;  ///< of one map
constexpr int32_t UNALIGN_MAX_CHANNELS = 65520;

/// y[c][p] = x[p][c] for c below `channels`. False, with nothing written, where a size is out of range.
/// \tparam T int8_t, or uint16_t for bf16: bits are moved, not looked at
/// \param pixels height * width \param x [pixels][lanes] \param lanes of a pixel \param y [channels][pixels]
template <class T>
inline bool unalign_nhwc16(const T x[], int32_t lanes, int32_t channels, int32_t pixels, T y[]) {
    if (channels < 1 || lanes < channels || lanes > UNALIGN_MAX_CHANNELS) return false;
    if (pixels < 1 || pixels > UNALIGN_MAX_PIXELS || (int64_t)pixels * lanes > ((int64_t)1 << 30)) return false;
    for (int32_t c = 0; c < channels; ++c) {
        NPU_TRIPCOUNT(1, UNALIGN_MAX_CHANNELS)
        for (int32_t p = 0; p < pixels; ++p) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, UNALIGN_MAX_PIXELS)
            y[c * pixels + p] = x[p * lanes + c];
        }
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
