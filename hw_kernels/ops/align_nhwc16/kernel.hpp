// AlignNhwc16 on bytes: planes of a map to pixels of 16-lane blocks; pad lanes are 0.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int ALIGN_MAX_PIXELS = 1 << 24;  ///< of one map
constexpr int ALIGN_MAX_CHANNELS = 65535;

/// y[p][c] = x[c][p], 0 for c from `channels` to the end of the last block.
/// \param pixels height * width \param x [channels][pixels] \param y [pixels][channels rounded up to 16]
inline void align_nhwc16(const int8_t x[], int32_t channels, int32_t pixels, int8_t y[]) {
    const int32_t blocks = (channels + LANES - 1) / LANES;
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(1, ALIGN_MAX_PIXELS)
        for (int32_t b = 0; b < blocks; ++b) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, ALIGN_MAX_CHANNELS / LANES + 1)
            NPU_UNROLL_NEXT
            for (int lane = 0; lane < LANES; ++lane) {
                NPU_UNROLL
                const int32_t c = b * LANES + lane;
                y[(p * blocks + b) * LANES + lane] = c < channels ? x[c * pixels + p] : (int8_t)0;
            }
        }
    }
}

}  // namespace hls
}  // namespace npuforge
