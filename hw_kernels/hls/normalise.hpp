// (x - mean) / sqrt(variance + epsilon) of up to 2^15 int16 values, in integers: neither mean nor variance is rounded.
#pragma once

#include "fixed_math.hpp"

namespace npuforge {
namespace hls {

constexpr int NORMALISE_MAX = 1 << 15;
constexpr int32_t EPSILON_MAX = 1 << 16;

/// Sums of the values, then what each becomes. With n values of sum S and square sum Q: n*x - S over the square root of
/// n*Q - S^2 + n^2*epsilon.
struct Normaliser {
    int64_t count = 0, sum = 0;
    uint64_t root = 0;  ///< the square root, shifted up to bits 30..31
    int half_shift = 0;

    /// Invariant: called once, after which `value` may be.
    void finish(int64_t values, int64_t total, int64_t squares, int32_t epsilon) {
        count = values;
        sum = total;
        const uint64_t spread = (uint64_t)(values * squares - total * total + values * values * epsilon);
        const int shift = spread == 0u ? 0 : ((leading_zeros_64(spread) - 1) & ~1);
        root = square_root(spread << shift);
        half_shift = shift / 2;
    }

    /// The normalised value with `bits` fraction bits, 20 at most; 0 where all values are equal and epsilon is 0.
    int64_t value(int16_t x, int bits = 12) const {
        if (root == 0u) return 0;
        return divide_rounded((count * x - sum) * ((int64_t)1 << (half_shift + bits)), (int64_t)root);
    }
};

/// scale*normalised + bias: scale has 12 fraction bits, bias and result 8.
inline int16_t scaled_value(int64_t normalised, int16_t scale, int16_t bias) {
    const int64_t sum = ((normalised * scale + (1 << 15)) >> 16) + bias;
    return (int16_t)(sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum);
}

}  // namespace hls
}  // namespace npuforge
