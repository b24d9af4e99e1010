// Fixed-point functions of kernels that no engine runs: e^-x, sigmoid, square root, rounded division.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int EXP_SEGMENTS = 64;
constexpr int32_t LOG2_E = 94548;  ///< log2(e) with 16 fraction bits
/// round(2^30 * 2^(-k/64)), k = 0 .. 64.
constexpr int32_t EXP_TABLE[EXP_SEGMENTS + 1] = {
    1073741824, 1062175491, 1050733751, 1039415261, 1028218693, 1017142735, 1006186087, 995347464, 984625594, 974019220,
    963527098,  953147997,  942880699,  932724001,  922676710,  912737649,  902905651,  893179563, 883558244, 874040567,
    864625413,  855311680,  846098274,  836984114,  827968132,  819049271,  810226483,  801498734, 792865000, 784324269,
    775875538,  767517817,  759250125,  751071493,  742980960,  734977579,  727060411,  719228525, 711481005, 703816941,
    696235434,  688735596,  681316545,  673977412,  666717336,  659535466,  652430958,  645402981, 638450708, 631573326,
    624770026,  618040012,  611382493,  604796689,  598281827,  591837143,  585461881,  579155293, 572916640, 566745190,
    560640218,  554601009,  548626854,  542717053,  536870912};

/// 2^-t with 30 fraction bits; t has 24. Linear between 64 points: within 2^-15.9 of the value.
inline int32_t power_of_half(uint32_t t) {
    const uint32_t whole = t >> 24, part = t & 0xFFFFFFu;
    const uint32_t segment = part >> 18;
    const int64_t rest = (int64_t)(part & 0x3FFFFu);
    const int64_t base = EXP_TABLE[segment];
    const int64_t value = base - (((base - EXP_TABLE[segment + 1]) * rest) >> 18);
    if (whole == 0u) return (int32_t)value;
    return whole > 31u ? 0 : (int32_t)((value + ((int64_t)1 << (whole - 1u))) >> whole);
}

/// e^-x with 30 fraction bits; x is not negative and has 12.
inline int32_t exponential_of_minus(int32_t x) {
    const int64_t t = ((int64_t)x * LOG2_E) >> 4;
    return t >> 29 != 0 ? 0 : power_of_half((uint32_t)t);
}

/// The quotient of a numerator of either sign and a positive denominator, halves away from 0.
inline int64_t divide_rounded(int64_t numerator, int64_t denominator) {
    const bool negative = numerator < 0;
    const int64_t magnitude = negative ? -numerator : numerator;
    const int64_t quotient = (magnitude + denominator / 2) / denominator;
    return negative ? -quotient : quotient;
}

/// 1 / (1 + e^-x) with 15 fraction bits; x has 12.
inline int32_t sigmoid_fixed(int32_t x) {
    const int64_t one = (int64_t)1 << 30;
    const int64_t small = exponential_of_minus(x < 0 ? -x : x);
    return (int32_t)divide_rounded((x < 0 ? small : one) << 15, one + small);
}

/// The whole part of the square root, bit by bit.
inline uint32_t square_root(uint64_t value) {
    uint64_t root = 0, rest = value;
    for (int bit = 31; bit >= 0; --bit) {
        NPU_PIPELINE
        const uint64_t tried = (root << 1 | (uint64_t)1 << bit) << bit;
        if (tried <= rest) {
            rest -= tried;
            root |= (uint64_t)1 << bit;
        }
    }
    return (uint32_t)root;
}

/// Leading zero bits; 64 for 0.
inline int leading_zeros_64(uint64_t value) {
    const uint32_t high = (uint32_t)(value >> 32), low = (uint32_t)value;
    if (high != 0u) return (int)npu_leading_zeros(high);
    return low != 0u ? 32 + (int)npu_leading_zeros(low) : 64;
}

}  // namespace hls
}  // namespace npuforge
