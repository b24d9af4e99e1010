// Edges of a kernel of its own: the NPU's int8 and bf16 to the fixed-point integers that the kernel computes with, and
// back. Pure functions; normative bits in hw_kernels/edges.py.
#pragma once

#include "fixed_math.hpp"
#include "float_units.hpp"
#include "requantise.hpp"

namespace npuforge {
namespace hls {

/// How one channel enters or leaves: a record of 32 bits, multiplier in the lowest 16, shift and zero point in 8 each.
struct Edge {
    int16_t multiplier;
    int8_t shift;  ///< 0 .. 47
    int8_t zero_point;
};

inline Edge read_edge(int32_t record) {
    NPU_INLINE
    Edge edge;
    edge.multiplier = (int16_t)isa::sign_extend((uint32_t)record & 0xffffu, 16);
    edge.shift = (int8_t)isa::sign_extend(((uint32_t)record >> 16) & 0xffu, 8);
    edge.zero_point = (int8_t)isa::sign_extend((uint32_t)record >> 24, 8);
    return edge;
}

/// Whether every record's shift is in range: kernels compute nothing otherwise.
inline bool legal_edges(const int32_t records[], int32_t count) {
    bool legal = true;
    for (int32_t i = 0; i < count; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, 1024)
        const Edge edge = read_edge(records[i]);
        legal = legal && edge.shift >= 0 && edge.shift <= MAX_SHIFT;
    }
    return legal;
}

/// (q - z) * M / 2^S, halves up. Below 2^24 in magnitude.
inline int32_t fixed_of_int8(int8_t q, const Edge& edge) {
    NPU_INLINE
    return (int32_t)round_shift((int64_t)((int32_t)q - edge.zero_point) * edge.multiplier, edge.shift);
}

/// sat8((v * M + offset) / 2^S + z), halves up. Invariant: |v * M| and |offset| < 2^61.
inline int8_t int8_of_fixed(int64_t value, const Edge& edge, int64_t offset = 0) {
    NPU_INLINE
    return (int8_t)clamp(round_shift(value * edge.multiplier + offset, edge.shift) + edge.zero_point, -128, 127);
}

inline bool is_finite_bf16(uint16_t bits) {
    NPU_INLINE
    return exponent_of_bf16(bits) != 255u;
}

/// value * 2^fraction_bits, halves up, saturated to -limit .. limit; NaN and denormals 0. Invariant: 0 <= limit < 2^31,
/// |fraction_bits| <= 512.
inline int32_t fixed_of_bf16(uint16_t bits, int fraction_bits, int32_t limit) {
    const int exponent = (int)exponent_of_bf16(bits);
    const bool negative = (bits >> 15) != 0;
    if (exponent == 0) return 0;
    if (exponent == 255) return (bits & 0x7f) != 0 ? 0 : negative ? -limit : limit;
    const int64_t magnitude = (bits & 0x7f) | 0x80;
    const int64_t mantissa = negative ? -magnitude : magnitude;
    const int shift = exponent - 134 + fraction_bits;  // of the mantissa, to the left
    if (shift < -9) return 0;
    if (shift > 24) return negative ? -limit : limit;
    return clamp(shift < 0 ? round_shift(mantissa, -shift) : mantissa * ((int64_t)1 << shift), -limit, limit);
}

/// value / 2^fraction_bits as bf16: nearest, ties to even; infinite above the range, zero of its sign below it.
/// Invariant: |value| < 2^63, |fraction_bits| <= 512.
inline uint16_t bf16_of_fixed(int64_t value, int fraction_bits) {
    if (value == 0) return 0;
    const uint32_t sign = value < 0 ? 0x8000u : 0u;
    const uint64_t magnitude = value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value;
    const int zeros = leading_zeros_64(magnitude);
    const uint64_t aligned = magnitude << zeros;
    const uint64_t rest = aligned & (((uint64_t)1 << 56) - 1u), half = (uint64_t)1 << 55;
    const uint32_t kept = (uint32_t)(aligned >> 56);
    const uint32_t rounded = kept + ((rest > half || (rest == half && (kept & 1u) != 0u)) ? 1u : 0u);
    const int exponent = 190 - zeros - fraction_bits + (int)(rounded >> 8);
    if (exponent < 1) return (uint16_t)sign;
    if (exponent > 254) return (uint16_t)(sign | 0x7f80u);
    return (uint16_t)(sign | ((uint32_t)exponent << 7) | (rounded & 0x7fu));  // a carry leaves all mantissa bits 0
}

/// The same as float32, for arithmetic that ends in `round_bf16`.
inline uint32_t float_of_fixed(int64_t value, int fraction_bits) {
    if (value == 0) return 0;
    const uint32_t sign = value < 0 ? SIGN_BIT : 0u;
    const uint64_t magnitude = value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value;
    const int zeros = leading_zeros_64(magnitude);
    const uint64_t aligned = magnitude << zeros;
    const uint32_t sticky = (aligned & (((uint64_t)1 << 37) - 1u)) != 0u ? 1u : 0u;
    return round_pack(sign, 190 - zeros - fraction_bits, (uint32_t)(aligned >> 37) | sticky);
}

/// Elements of a pixel in NHWC-16.
inline int32_t lanes_of(int32_t channels) {
    NPU_INLINE
    return (channels + LANES - 1) / LANES * LANES;
}

/// Writes 0 to the pad lanes of every pixel. \tparam T int8_t, or uint16_t for bf16
template <class T>
inline void clear_pad_lanes(T y[], int32_t pixels, int32_t channels) {
    const int32_t lanes = lanes_of(channels);
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(1, 65536)
        for (int32_t c = channels; c < lanes; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(0, 15)
            y[p * lanes + c] = 0;
        }
    }
}

}  // namespace hls
}  // namespace npuforge
