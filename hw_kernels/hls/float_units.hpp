// Adder, multiplier and rounding of the bf16 engines as integer logic on float32 bit patterns (DESIGN section 4): round
// to nearest, ties to even; denormal operands and results are zeros of their sign; NaN is the canonical one. Pure
// functions.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr uint32_t SIGN_BIT = 0x80000000u;
constexpr uint32_t INFINITY_BITS = 0x7f800000u;
constexpr uint32_t NAN_BITS = 0x7fc00000u;
constexpr uint32_t ONE_BITS = 0x3f800000u;
constexpr uint32_t MANTISSA_BITS = 23u;
constexpr uint32_t HIDDEN_BIT = 1u << MANTISSA_BITS;

inline uint32_t exponent_of(uint32_t a) {
    NPU_INLINE
    return (a >> MANTISSA_BITS) & 0xffu;
}
inline bool is_nan(uint32_t a) {
    NPU_INLINE
    return (a & ~SIGN_BIT) > INFINITY_BITS;
}
inline bool is_infinite(uint32_t a) {
    NPU_INLINE
    return (a & ~SIGN_BIT) == INFINITY_BITS;
}
/// Zero or denormal, which counts as zero.
inline bool is_zero(uint32_t a) {
    NPU_INLINE
    return exponent_of(a) == 0u;
}
inline uint32_t exponent_of_bf16(uint16_t a) {
    NPU_INLINE
    return ((uint32_t)a >> 7) & 0xffu;
}
inline bool is_nan_bf16(uint16_t a) {
    NPU_INLINE
    return (a & 0x7fffu) > 0x7f80u;
}
/// Denormal numbers become zeros of their sign, every NaN the canonical one.
inline uint32_t canonical(uint32_t a) {
    NPU_INLINE
    if (is_nan(a)) return NAN_BITS;
    return is_zero(a) ? a & SIGN_BIT : a;
}

/// Rounds to nearest, ties to even, and packs. Invariant: `mantissa` has its leading one at bit 26, three bits below
/// the last one kept, the lowest of them sticky; `exponent` may lie outside 1..254.
inline uint32_t round_pack(uint32_t sign, int32_t exponent, uint32_t mantissa) {
    NPU_INLINE
    const uint32_t kept = mantissa >> 3;
    const uint32_t rest = mantissa & 7u;
    const uint32_t up = (rest > 4u || (rest == 4u && (kept & 1u) != 0u)) ? 1u : 0u;
    const uint32_t rounded = kept + up;
    const int32_t carried = exponent + (int32_t)(rounded >> (MANTISSA_BITS + 1u));
    if (carried < 1) return sign;
    if (carried > 254) return sign | INFINITY_BITS;
    // A carry leaves all mantissa bits 0.
    return sign | ((uint32_t)carried << MANTISSA_BITS) | (rounded & (HIDDEN_BIT - 1u));
}

/// a + b.
inline uint32_t add_float(uint32_t a, uint32_t b) {
    const uint32_t magnitude_a = is_zero(a) ? 0u : a & ~SIGN_BIT;
    const uint32_t magnitude_b = is_zero(b) ? 0u : b & ~SIGN_BIT;
    const bool swap = magnitude_b > magnitude_a;
    const uint32_t large = swap ? b : a;
    const uint32_t small = swap ? a : b;
    const uint32_t larger = swap ? magnitude_b : magnitude_a;
    const uint32_t smaller = swap ? magnitude_a : magnitude_b;
    const bool opposite = ((a ^ b) & SIGN_BIT) != 0u;
    if (larger >= INFINITY_BITS) {
        const bool invalid = larger > INFINITY_BITS || (smaller == INFINITY_BITS && opposite);
        return invalid ? NAN_BITS : large;
    }
    const uint32_t sign = large & SIGN_BIT;
    if (smaller == 0u) {
        if (larger != 0u) return large;
        return a & b & SIGN_BIT;  // -0 only where both are
    }
    const uint32_t distance = exponent_of(large) - exponent_of(small);
    const uint32_t wide_large = ((large & (HIDDEN_BIT - 1u)) | HIDDEN_BIT) << 3;
    const uint32_t wide_small = ((small & (HIDDEN_BIT - 1u)) | HIDDEN_BIT) << 3;
    const uint32_t shift = distance < 27u ? distance : 27u;
    const uint32_t aligned = wide_small >> shift;
    const uint32_t sticky = (aligned << shift) != wide_small ? 1u : 0u;
    const uint32_t addend = aligned | sticky;
    uint32_t sum = opposite ? wide_large - addend : wide_large + addend;
    if (sum == 0u) return 0u;
    int32_t exponent = (int32_t)exponent_of(large);
    if ((sum >> 27) != 0u) {
        sum = (sum >> 1) | (sum & 1u);
        ++exponent;
    } else {
        const uint32_t left = npu_leading_zeros(sum) - 5u;
        sum <<= left;
        exponent -= (int32_t)left;
    }
    return round_pack(sign, exponent, sum);
}

/// a - b.
inline uint32_t subtract_float(uint32_t a, uint32_t b) {
    NPU_INLINE
    return add_float(a, b ^ SIGN_BIT);
}

/// a * b.
inline uint32_t multiply_float(uint32_t a, uint32_t b) {
    const uint32_t sign = (a ^ b) & SIGN_BIT;
    if (is_nan(a) || is_nan(b)) return NAN_BITS;
    if (is_infinite(a) || is_infinite(b)) return is_zero(a) || is_zero(b) ? NAN_BITS : sign | INFINITY_BITS;
    if (is_zero(a) || is_zero(b)) return sign;
    const uint64_t left = (a & (HIDDEN_BIT - 1u)) | HIDDEN_BIT;
    const uint64_t right = (b & (HIDDEN_BIT - 1u)) | HIDDEN_BIT;
    const uint64_t product = left * right;  // leading one at bit 46 or 47
    int32_t exponent = (int32_t)exponent_of(a) + (int32_t)exponent_of(b) - 127;
    const bool high = (product >> 47) != 0u;
    exponent += high ? 1 : 0;
    const uint32_t drop = high ? 21u : 20u;
    const uint32_t kept = (uint32_t)(product >> drop);
    const uint32_t sticky = (product & (((uint64_t)1 << drop) - 1u)) != 0u ? 1u : 0u;
    return round_pack(sign, exponent, kept | sticky);
}

/// a * b of bf16 operands: 8 x 8 bits of mantissa, exact unless it leaves the exponent range.
inline uint32_t multiply_bf16(uint16_t a, uint16_t b) {
    NPU_INLINE
    const uint32_t exponent_a = exponent_of_bf16(a);
    const uint32_t exponent_b = exponent_of_bf16(b);
    const uint32_t sign = ((uint32_t)(a ^ b) << 16) & SIGN_BIT;
    if (exponent_a == 255u || exponent_b == 255u) return multiply_float((uint32_t)a << 16, (uint32_t)b << 16);
    if (exponent_a == 0u || exponent_b == 0u) return sign;
    const uint32_t product = (((uint32_t)a & 0x7fu) | 0x80u) * (((uint32_t)b & 0x7fu) | 0x80u);  // bit 14 or 15 leads
    const uint32_t high = product >> 15;
    const int32_t exponent = (int32_t)(exponent_a + exponent_b + high) - 127;
    if (exponent < 1) return sign;
    if (exponent > 254) return sign | INFINITY_BITS;
    const uint32_t mantissa = (product << (high != 0u ? 8 : 9)) & (HIDDEN_BIT - 1u);
    return sign | ((uint32_t)exponent << MANTISSA_BITS) | mantissa;
}

/// a * weight, +0 where the weight is zero: what lies in lanes that no weight reads, be it NaN, cannot matter.
inline uint32_t weigh_bf16(uint16_t a, uint16_t weight) {
    NPU_INLINE
    return exponent_of_bf16(weight) == 0u ? 0u : multiply_bf16(a, weight);
}

/// a < b; false where one is NaN; -0 equals +0.
inline bool less_float(uint32_t a, uint32_t b) {
    NPU_INLINE
    if (is_nan(a) || is_nan(b)) return false;
    const uint32_t x = is_zero(a) ? 0u : a;
    const uint32_t y = is_zero(b) ? 0u : b;
    const bool negative_x = (x & SIGN_BIT) != 0u;
    const bool negative_y = (y & SIGN_BIT) != 0u;
    if (negative_x != negative_y) return negative_x;
    return negative_x ? x > y : x < y;
}

/// a == b; false where one is NaN; -0 equals +0.
inline bool equal_float(uint32_t a, uint32_t b) {
    NPU_INLINE
    return !is_nan(a) && !is_nan(b) && !less_float(a, b) && !less_float(b, a);
}

/// float32 to bf16.
inline uint16_t round_bf16(uint32_t a) {
    NPU_INLINE
    const uint32_t value = canonical(a);
    if (is_nan(value)) return (uint16_t)(NAN_BITS >> 16);
    return (uint16_t)((value + 0x7fffu + ((value >> 16) & 1u)) >> 16);
}

inline uint32_t widen_bf16(uint16_t a) {
    NPU_INLINE
    return canonical((uint32_t)a << 16);
}

/// Sum of 16 products as a balanced tree: (0,1)(2,3)..., then pairs of pairs, four times.
inline uint32_t tree_sum(const uint32_t product[LANES]) {
    uint32_t level[LANES];
    NPU_PARTITION(level, 1)
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        level[lane] = product[lane];
    }
    for (int width = LANES / 2; width > 0; width /= 2) {
        NPU_UNROLL
        for (int k = 0; k < width; ++k) {
            NPU_UNROLL
            level[k] = add_float(level[2 * k], level[2 * k + 1]);
        }
    }
    return level[0];
}

}  // namespace hls
}  // namespace npuforge
