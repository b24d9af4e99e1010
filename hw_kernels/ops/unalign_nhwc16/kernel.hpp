// UnalignNhwc16 on bytes: pixels of 16-lane blocks to planes; pad lanes are dropped.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int UNALIGN_MAX_PIXELS = 1 << 24;  ///< of one map
constexpr int UNALIGN_MAX_CHANNELS = 65535;

/// y[c][p] = x[p][c] for c below `channels`.
/// \param pixels height * width \param x [pixels][lanes] \param lanes of a pixel \param y [channels][pixels]
inline void unalign_nhwc16(const int8_t x[], int32_t lanes, int32_t channels, int32_t pixels, int8_t y[]) {
    for (int32_t c = 0; c < channels; ++c) {
        NPU_TRIPCOUNT(1, UNALIGN_MAX_CHANNELS)
        for (int32_t p = 0; p < pixels; ++p) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, UNALIGN_MAX_PIXELS)
            y[c * pixels + p] = x[p * lanes + c];
        }
    }
}

}  // namespace hls
}  // namespace npuforge
