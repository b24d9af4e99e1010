// LeakyReluMask in integers: one block of 16 lanes, the piecewise-linear output stage and a mask of 16 bits; int8 and
// bf16 maps in NHWC-16.
#pragma once

#include "edges.hpp"

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

constexpr int32_t MASK_LANES_MAX = 1 << 16;

inline bool leaky_relu_mask_legal(int32_t pixels, int32_t lanes) {
    if (pixels < 1 || lanes < 1 || lanes > MASK_LANES_MAX || lanes % LANES != 0) return false;
    return pixels <= (1 << 30) / lanes;
}

/// int8: x [pixels][lanes]; parameters per lane, 0 in pad lanes, whose bytes and bits are then 0. False, with nothing
/// written, where a size or a shift is out of range.
/// \param mask [pixels][lanes / 16] words
inline bool leaky_relu_mask_int8(const int8_t x[], const int8_t z_in[], const int16_t m_pos[], const int16_t m_neg[],
                                 const int8_t shift[], const int8_t z_out[], const int8_t low[], const int8_t high[],
                                 int32_t pixels, int32_t lanes, int8_t y[], uint16_t mask[]) {
    if (!leaky_relu_mask_legal(pixels, lanes)) return false;
    bool legal = true;
    for (int32_t lane = 0; lane < lanes; ++lane) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(16, MASK_LANES_MAX)
        legal = legal && shift[lane] >= 0 && shift[lane] <= MAX_SHIFT;
    }
    if (!legal) return false;
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(1, 1 << 16)
        for (int32_t block = 0; block < lanes; block += LANES) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, 64)
            const int32_t at = p * lanes + block;
            leaky_relu_mask(&x[at], &z_in[block], &m_pos[block], &m_neg[block], &shift[block], &z_out[block],
                            &low[block], &high[block], &y[at], &mask[at / LANES]);
        }
    }
    return true;
}

/// bf16: x [pixels][lanes], one slope (float32 bits). A NaN stays one, its bit is 0. Pad lanes must be 0.
inline bool leaky_relu_mask_bf16(const uint16_t x[], int32_t slope, int32_t pixels, int32_t lanes, uint16_t y[],
                                 uint16_t mask[]) {
    if (!leaky_relu_mask_legal(pixels, lanes)) return false;
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(1, 1 << 16)
        for (int32_t block = 0; block < lanes; block += LANES) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, 64)
            uint16_t bits = 0;
            NPU_UNROLL_NEXT
            for (int lane = 0; lane < LANES; ++lane) {
                NPU_UNROLL
                const int32_t at = p * lanes + block + lane;
                const uint32_t value = widen_bf16(x[at]);
                y[at] = round_bf16(less_float(value, 0u) ? multiply_float(value, (uint32_t)slope) : value);
                bits = (uint16_t)(bits | (less_float(0u, value) ? 1u << lane : 0u));
            }
            mask[(p * lanes + block) / LANES] = bits;
        }
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
