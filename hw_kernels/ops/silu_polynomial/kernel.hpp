// SiluPolynomial in integers: 16 lanes, int16 with 11 fraction bits in and out (op.py: fixed_point is normative).
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

/// y = t/2 + c0 + c2 t^2 + c4 t^4 on [-8, 8], 0 below, t above. Invariant: t^2 < 2^17 with 11 fraction bits, so every
/// product stays below 2^36.
/// \param x input \param y output
inline void silu_polynomial(const int16_t x[LANES], int16_t y[LANES]) {
    const int32_t edge = (int32_t)8 << 11;
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        const int32_t t = x[lane];
        const int64_t inner = t < -edge ? -edge : (t > edge ? edge : t);
        const int64_t square = (inner * inner) >> 11;
        const int64_t slope = ((square * -31288) >> 18) + 30424;
        const int64_t even = ((slope * square) >> 11) + 50973;
        const int64_t value = (inner * 64 + even + 64) >> 7;
        y[lane] = (int16_t)(t < -edge ? 0 : (t > edge ? (int64_t)t : value));
    }
}

}  // namespace hls
}  // namespace npuforge
