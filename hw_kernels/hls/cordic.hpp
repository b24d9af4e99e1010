// CORDIC: sine and cosine of an angle, and the angle of a point, by shifts and additions (Volder 1959). Angles are
// int16 with a whole turn as 2^16, so they wrap as int16 does.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int CORDIC_STEPS = 16;
/// round(atan(2^-i) / 2 pi * 2^32): a turn as 2^32.
constexpr int32_t CORDIC_ANGLE[CORDIC_STEPS] = {536870912, 316933406, 167458907, 85004756, 42667331, 21354465,
                                                10679838,  5340245,   2670163,   1335087,  667544,   333772,
                                                166886,    83443,     41722,     20861};
constexpr int32_t CORDIC_SCALE = 652032874;  ///< round(2^30 / product of sqrt(1 + 4^-i))

/// Sine and cosine of `angle` with 14 fraction bits.
inline void cordic_rotate(int16_t angle, int16_t& sine, int16_t& cosine) {
    // Into [-90, 90] degrees: half a turn further the signs change.
    const bool turned = angle > 16384 || angle < -16384;
    const int16_t near = turned ? (int16_t)(angle ^ (int16_t)-32768) : angle;
    int32_t rest = (int32_t)near * 65536;
    int32_t x = CORDIC_SCALE, y = 0;
    NPU_UNROLL_NEXT
    for (int i = 0; i < CORDIC_STEPS; ++i) {
        NPU_UNROLL
        const int32_t dx = y >> i, dy = x >> i;
        const bool up = rest >= 0;
        x = up ? x - dx : x + dx;
        y = up ? y + dy : y - dy;
        rest = up ? rest - CORDIC_ANGLE[i] : rest + CORDIC_ANGLE[i];
    }
    const int32_t s = (y + (1 << 15)) >> 16, c = (x + (1 << 15)) >> 16;
    sine = (int16_t)(turned ? -s : s);
    cosine = (int16_t)(turned ? -c : c);
}

/// The angle of the point (x, y), 0 for (0, 0).
inline int16_t cordic_angle(int16_t x_in, int16_t y_in) {
    if (x_in == 0 && y_in == 0) return 0;
    const bool turned = x_in < 0;  // half a turn further: then x is not negative
    // 13 more bits, so that small points keep theirs; |(x, y)| < 2^15.5, times 1.65 and 2^13: below 2^30.
    int32_t x = (int32_t)(turned ? -(int32_t)x_in : (int32_t)x_in) * 8192;
    int32_t y = (int32_t)(turned ? -(int32_t)y_in : (int32_t)y_in) * 8192;
    int32_t total = 0;
    NPU_UNROLL_NEXT
    for (int i = 0; i < CORDIC_STEPS; ++i) {
        NPU_UNROLL
        const int32_t dx = y >> i, dy = x >> i;
        const bool down = y >= 0;
        x = down ? x + dx : x - dx;
        y = down ? y - dy : y + dy;
        total = down ? total + CORDIC_ANGLE[i] : total - CORDIC_ANGLE[i];
    }
    const int32_t rounded = (total + (1 << 15)) >> 16;
    return (int16_t)(turned ? rounded + 32768 : rounded);
}

}  // namespace hls
}  // namespace npuforge
