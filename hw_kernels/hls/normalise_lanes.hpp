// Normalisation of NHWC-16 tensors in int8 and bf16: what LayerNormalization and GroupNormalization share. A set is
// `count` channels from `first` on of `pixels` pixels.
#pragma once

#include "edges.hpp"
#include "normalise.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t NORMALISE_CHANNELS_MAX = 1 << 15;
constexpr int NORMALISED_FLOAT_BITS = 20;  ///< fraction bits of a normalised value that becomes a float
constexpr int EPSILON_BITS_MAX = 30;

/// One set of values: where it lies, how far its parameters are apart from pixel to pixel (0: one per channel), and
/// whether its mean is taken away (else it is the root of the mean square that is divided by).
struct NormaliseSet {
    int32_t base, pixels, channels, first, count, parameter_stride;
    bool centred;

    int32_t address(int32_t pixel, int32_t c) const { return base + pixel * lanes_of(channels) + c; }
    int32_t parameter(int32_t pixel, int32_t c) const { return pixel * parameter_stride + c; }
};

/// Whether all sets are within bounds. \param count sets \param values of one set
inline bool normalise_legal(int32_t count, int32_t pixels, int32_t channels, int64_t values) {
    if (count < 1 || pixels < 1 || channels < 1 || channels > NORMALISE_CHANNELS_MAX) return false;
    if (pixels > NORMALISE_MAX || values > NORMALISE_MAX) return false;
    return (int64_t)pixels * lanes_of(channels) <= ((int64_t)1 << 30) / count;
}

/// \param multipliers, offsets of the parameter index, so that y = sat8((n * M + K) / 2^S + z), n having 12 fraction
/// bits \param epsilon in squares of the integers' unit
inline void normalise_int8(const int8_t x[], const NormaliseSet& set, const int32_t in_edges[],
                           const int16_t multipliers[], const int32_t offsets[], const int32_t out_edges[],
                           int32_t epsilon, int8_t y[]) {
    int64_t sum = 0, squares = 0;
    for (int32_t p = 0; p < set.pixels; ++p) {
        NPU_TRIPCOUNT(1, NORMALISE_MAX)
        for (int32_t c = set.first; c < set.first + set.count; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, NORMALISE_CHANNELS_MAX)
            const int32_t v = clamp(fixed_of_int8(x[set.address(p, c)], read_edge(in_edges[c])), -32767, 32767);
            sum += v;
            squares += (int64_t)v * v;
        }
    }
    Normaliser normaliser;
    normaliser.finish((int64_t)set.pixels * set.count, set.centred ? sum : 0, squares, epsilon);
    for (int32_t p = 0; p < set.pixels; ++p) {
        NPU_TRIPCOUNT(1, NORMALISE_MAX)
        for (int32_t c = set.first; c < set.first + set.count; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, NORMALISE_CHANNELS_MAX)
            const int32_t v = clamp(fixed_of_int8(x[set.address(p, c)], read_edge(in_edges[c])), -32767, 32767);
            const int32_t at = set.parameter(p, c);
            Edge out = read_edge(out_edges[c]);
            out.multiplier = multipliers[at];
            y[set.address(p, c)] = int8_of_fixed(normaliser.value((int16_t)v), out, offsets[at]);
        }
    }
}

/// Fraction bits of a set: its largest value has 15 bits, unless epsilon would then have more than 30.
inline int normalise_fraction_bits(int largest_exponent, uint32_t epsilon) {
    NPU_INLINE
    const int by_values = 141 - largest_exponent;
    if (is_zero(epsilon)) return by_values;
    const int by_epsilon = (EPSILON_BITS_MAX + 126 - (int)exponent_of(epsilon)) >> 1;
    return by_values < by_epsilon ? by_values : by_epsilon;
}

/// A positive float32 times 2^fraction_bits, halves up. Invariant: the result is below 2^31.
inline int32_t fixed_of_float(uint32_t value, int fraction_bits) {
    NPU_INLINE
    const int64_t mantissa = (value & (HIDDEN_BIT - 1u)) | HIDDEN_BIT;
    const int shift = (int)exponent_of(value) - 150 + fraction_bits;
    if (is_zero(value) || shift < -25) return 0;
    return (int32_t)(shift < 0 ? round_shift(mantissa, -shift) : mantissa << shift);
}

/// y = round(n * scale + bias) in float32 operations. NaN throughout a set that holds NaN, or infinity where the mean
/// is taken away; else what is infinite becomes NaN and the rest 0 before scale and bias.
/// \param scale, bias float32 bits of the parameter index \param epsilon float32 bits, not negative
inline void normalise_bf16(const uint16_t x[], const NormaliseSet& set, const uint32_t scale[], const uint32_t bias[],
                           uint32_t epsilon, uint16_t y[]) {
    int largest_exponent = 1;
    bool some_nan = false, some_infinite = false;
    for (int32_t p = 0; p < set.pixels; ++p) {
        NPU_TRIPCOUNT(1, NORMALISE_MAX)
        for (int32_t c = set.first; c < set.first + set.count; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, NORMALISE_CHANNELS_MAX)
            const uint16_t value = x[set.address(p, c)];
            const int exponent = (int)exponent_of_bf16(value);
            some_nan = some_nan || is_nan_bf16(value);
            some_infinite = some_infinite || (value & 0x7fffu) == 0x7f80u;
            largest_exponent = exponent > largest_exponent ? exponent : largest_exponent;
        }
    }
    const bool no_number = some_nan || (some_infinite && set.centred);
    const int bits = normalise_fraction_bits(largest_exponent, epsilon);
    int64_t sum = 0, squares = 0;
    for (int32_t p = 0; p < set.pixels; ++p) {
        NPU_TRIPCOUNT(1, NORMALISE_MAX)
        for (int32_t c = set.first; c < set.first + set.count; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, NORMALISE_CHANNELS_MAX)
            const int64_t v = fixed_of_bf16(x[set.address(p, c)], bits, 32767);
            sum += v;
            squares += v * v;
        }
    }
    Normaliser normaliser;
    normaliser.finish((int64_t)set.pixels * set.count, set.centred ? sum : 0, squares,
                      fixed_of_float(epsilon, 2 * bits));
    for (int32_t p = 0; p < set.pixels; ++p) {
        NPU_TRIPCOUNT(1, NORMALISE_MAX)
        for (int32_t c = set.first; c < set.first + set.count; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, NORMALISE_CHANNELS_MAX)
            const uint16_t value = x[set.address(p, c)];
            const int16_t v = (int16_t)fixed_of_bf16(value, bits, 32767);
            const int32_t at = set.parameter(p, c);
            const int64_t normal = some_infinite ? (int64_t)0 : normaliser.value(v, NORMALISED_FLOAT_BITS);
            const uint32_t n = float_of_fixed(normal, NORMALISED_FLOAT_BITS);
            const uint32_t result = add_float(multiply_float(n, scale[at]), bias[at]);
            y[set.address(p, c)] =
                no_number || !is_finite_bf16(value) ? (uint16_t)(NAN_BITS >> 16) : round_bf16(result);
        }
    }
}

}  // namespace hls
}  // namespace npuforge
