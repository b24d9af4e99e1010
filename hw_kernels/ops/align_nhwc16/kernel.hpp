// AlignNhwc16 on int8 and bf16: planes of a map to pixels of 16-lane blocks; pad lanes are 0.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t ALIGN_MAX_PIXELS = 1 << 24;  ///< of one map
constexpr int32_t ALIGN_MAX_CHANNELS = 65520;

/// y[p][c] = x[c][p], 0 for c from `channels` to the end of the last block. False, with nothing written, where a size
/// is out of range.
/// \tparam T int8_t, or uint16_t for bf16: bits are moved, not looked at
/// \param pixels height * width \param x [channels][pixels] \param y [pixels][channels rounded up to 16]
template <class T>
inline bool align_nhwc16(const T x[], int32_t channels, int32_t pixels, T y[]) {
    if (channels < 1 || channels > ALIGN_MAX_CHANNELS || pixels < 1 || pixels > ALIGN_MAX_PIXELS) return false;
    const int32_t blocks = (channels + LANES - 1) / LANES;
    if ((int64_t)pixels * blocks * LANES > ((int64_t)1 << 30)) return false;
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(1, ALIGN_MAX_PIXELS)
        for (int32_t b = 0; b < blocks; ++b) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, ALIGN_MAX_CHANNELS / LANES)
            NPU_UNROLL_NEXT
            for (int lane = 0; lane < LANES; ++lane) {
                NPU_UNROLL
                const int32_t c = b * LANES + lane;
                y[(p * blocks + b) * LANES + lane] = c < channels ? x[c * pixels + p] : (T)0;
            }
        }
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
