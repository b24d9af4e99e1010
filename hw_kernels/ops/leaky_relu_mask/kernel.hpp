// LeakyReluMask in integers: one block of 16 lanes, the piecewise-linear output stage and a mask of 16 bits.
#pragma once

#include "requantise.hpp"

namespace npuforge {
namespace hls {

/// y = piecewise-linear stage of x - z_in; bit `lane` of mask is 1 where x > z_in.
/// \param x input \param z_in its zero points \param m_pos, m_neg, shift, z_out, low, high the stage's parameters
/// \param y output \param mask one word
inline void leaky_relu_mask(const int8_t x[LANES], const int8_t z_in[LANES], const int16_t m_pos[LANES],
                            const int16_t m_neg[LANES], const int8_t shift[LANES], const int8_t z_out[LANES],
                            const int8_t low[LANES], const int8_t high[LANES], int8_t y[LANES], uint16_t mask[1]) {
    StageParameters p;
    int64_t acc[LANES];
    NPU_PARTITION(acc, 1)
    uint16_t bits = 0;
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        acc[lane] = (int64_t)x[lane] - z_in[lane];
        p.m0[lane] = m_pos[lane];
        p.m1[lane] = m_neg[lane];
        p.s0[lane] = shift[lane];
        p.z[lane] = z_out[lane];
        p.a[lane] = low[lane];
        p.b[lane] = high[lane];
        bits = (uint16_t)(bits | (acc[lane] > 0 ? 1u << lane : 0u));
    }
    stage_pwl(acc, p, y);
    mask[0] = bits;
}

}  // namespace hls
}  // namespace npuforge
