// Softmax in integers: int16 logits with 8 fraction bits to probabilities with 14; int8 and bf16 in NHWC-16.
#pragma once

#include "edges.hpp"

namespace npuforge {
namespace hls {

constexpr int SOFTMAX_UNIT_BITS = 30;  ///< fraction bits of a probability before it leaves
constexpr int SOFTMAX_SIZE_MAX = 1 << 24;
constexpr int32_t LOGIT_MAX = (1 << 30) - 1;

/// y[i] = e^x[i] / sum of e^x with OUT_BITS fraction bits; x has `fraction_bits` (12 at most, below 0 for large units).
/// Invariant: 1 <= length <= MAX_LENGTH, |x| <= LOGIT_MAX.
template <int MAX_LENGTH, int OUT_BITS>
inline void softmax_core(const int32_t x[], int32_t length, int fraction_bits, int32_t y[]) {
    int32_t largest = x[0];
    for (int32_t i = 1; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(0, MAX_LENGTH)
        largest = x[i] > largest ? x[i] : largest;
    }
    const int left = fraction_bits < -19 ? 31 : 12 - fraction_bits;
    int32_t powers[MAX_LENGTH];
    int64_t sum = 0;  // at least 2^30: the largest logit's power
    for (int32_t i = 0; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_LENGTH)
        const int64_t below = ((int64_t)largest - x[i]) << left;
        powers[i] = below >> 31 != 0 ? 0 : exponential_of_minus((int32_t)below);
        sum += powers[i];
    }
    for (int32_t i = 0; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_LENGTH)
        y[i] = (int32_t)divide_rounded((int64_t)powers[i] << OUT_BITS, sum);
    }
}

/// y[i] = e^x[i] / sum of e^x. False, with nothing written, where `length` is not 1 .. MAX_LENGTH.
/// \tparam MAX_LENGTH values at most
template <int MAX_LENGTH>
inline bool softmax(const int16_t x[], int32_t length, int16_t y[]) {
    if (length < 1 || length > MAX_LENGTH) return false;
    int32_t wide[MAX_LENGTH], result[MAX_LENGTH];
    for (int32_t i = 0; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_LENGTH)
        wide[i] = x[i];
    }
    softmax_core<MAX_LENGTH, 14>(wide, length, 8, result);
    for (int32_t i = 0; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_LENGTH)
        y[i] = (int16_t)result[i];
    }
    return true;
}

/// Where the rows of a softmax lie in NHWC-16. Along the channels: `outer` pixels of `inner` groups of `length`
/// channels each (a box head's bins). Along pixels: memory is [outer][length][inner] pixels.
struct SoftmaxRows {
    int32_t outer, length, inner, channels;
    bool along_channels;

    bool legal(int32_t max_length) const {
        if (length < 1 || length > max_length || outer < 1 || inner < 1 || channels < 1) return false;
        if (outer > SOFTMAX_SIZE_MAX || inner > SOFTMAX_SIZE_MAX || channels > SOFTMAX_SIZE_MAX) return false;
        if (along_channels && (int64_t)inner * length != channels) return false;
        const int64_t lanes = lanes_of(channels), most = SOFTMAX_SIZE_MAX;
        if (outer > most / lanes) return false;
        return along_channels || (int64_t)inner * length <= most / lanes / outer;
    }
    int32_t pixels() const { return along_channels ? outer : outer * length * inner; }
    int32_t rows() const { return along_channels ? inner : inner * channels; }
    int32_t channel(int32_t row, int32_t i) const { return along_channels ? row * length + i : row % channels; }
    int32_t address(int32_t o, int32_t row, int32_t i) const {
        const int32_t pixel = along_channels ? o : (o * length + i) * inner + row / channels;
        return pixel * lanes_of(channels) + channel(row, i);
    }
};

/// Softmax of int8. False, with nothing written, where a size, the fraction bits or a shift is out of range.
/// \tparam MAX_LENGTH values of a row at most
/// \param in_edges per channel, into integers with `fraction_bits` (-128 .. 12) \param out_edge from SOFTMAX_UNIT_BITS
template <int MAX_LENGTH>
inline bool softmax_int8(const int8_t x[], const int32_t in_edges[], int32_t fraction_bits, int32_t out_edge,
                         int32_t outer, int32_t length, int32_t inner, int32_t channels, int32_t along_channels,
                         int8_t y[]) {
    const SoftmaxRows rows = {outer, length, inner, channels, along_channels != 0};
    if (!rows.legal(MAX_LENGTH) || fraction_bits < -128 || fraction_bits > 12) return false;
    if (!legal_edges(in_edges, channels) || !legal_edges(&out_edge, 1)) return false;
    const Edge out = read_edge(out_edge);
    int32_t logits[MAX_LENGTH], unit[MAX_LENGTH];
    for (int32_t o = 0; o < outer; ++o) {
        NPU_TRIPCOUNT(1, SOFTMAX_SIZE_MAX)
        for (int32_t row = 0; row < rows.rows(); ++row) {
            NPU_TRIPCOUNT(1, 1024)
            for (int32_t i = 0; i < length; ++i) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, MAX_LENGTH)
                logits[i] = fixed_of_int8(x[rows.address(o, row, i)], read_edge(in_edges[rows.channel(row, i)]));
            }
            softmax_core<MAX_LENGTH, SOFTMAX_UNIT_BITS>(logits, length, fraction_bits, unit);
            for (int32_t i = 0; i < length; ++i) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, MAX_LENGTH)
                y[rows.address(o, row, i)] = int8_of_fixed(unit[i], out);
            }
        }
    }
    clear_pad_lanes(y, rows.pixels(), channels);
    return true;
}

/// Softmax of bf16, logits of any magnitude: a row's fraction bits follow its largest. NaN throughout a row that holds
/// NaN or +infinity, or nothing but -infinity.
template <int MAX_LENGTH>
inline bool softmax_bf16(const uint16_t x[], int32_t outer, int32_t length, int32_t inner, int32_t channels,
                         int32_t along_channels, uint16_t y[]) {
    const SoftmaxRows rows = {outer, length, inner, channels, along_channels != 0};
    if (!rows.legal(MAX_LENGTH)) return false;
    int32_t logits[MAX_LENGTH], unit[MAX_LENGTH];
    for (int32_t o = 0; o < outer; ++o) {
        NPU_TRIPCOUNT(1, SOFTMAX_SIZE_MAX)
        for (int32_t row = 0; row < rows.rows(); ++row) {
            NPU_TRIPCOUNT(1, 1024)
            int largest_exponent = 0;
            bool undefined = false, some = false;
            for (int32_t i = 0; i < length; ++i) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, MAX_LENGTH)
                const uint16_t bits = x[rows.address(o, row, i)];
                const int exponent = (int)exponent_of_bf16(bits);
                const bool finite = is_finite_bf16(bits);
                some = some || finite;
                undefined = undefined || (!finite && bits != 0xff80u);
                largest_exponent = finite && exponent > largest_exponent ? exponent : largest_exponent;
            }
            const int fraction_bits = largest_exponent > 144 ? 156 - largest_exponent : 12;  // |x| below 2^30 units
            for (int32_t i = 0; i < length; ++i) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, MAX_LENGTH)
                logits[i] = fixed_of_bf16(x[rows.address(o, row, i)], fraction_bits, LOGIT_MAX);
            }
            softmax_core<MAX_LENGTH, SOFTMAX_UNIT_BITS>(logits, length, fraction_bits, unit);
            for (int32_t i = 0; i < length; ++i) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, MAX_LENGTH)
                const bool is_number = some && !undefined;
                y[rows.address(o, row, i)] =
                    is_number ? bf16_of_fixed(unit[i], SOFTMAX_UNIT_BITS) : (uint16_t)(NAN_BITS >> 16);
            }
        }
    }
    clear_pad_lanes(y, rows.pixels(), channels);
    return true;
}

}  // namespace hls
}  // namespace npuforge
