// LayerNormalization in integers: values and bias with 8 fraction bits, scale with 12; int8 and bf16 in NHWC-16.
#pragma once

#include "normalise_lanes.hpp"

namespace npuforge {
namespace hls {

/// y[i] = scale[i] * (x[i] - mean) / sqrt(variance + epsilon) + bias[i]. False, with nothing written, where `length` or
/// `epsilon` is out of range.
/// \tparam MAX_LENGTH values at most \param epsilon 16 fraction bits
template <int MAX_LENGTH>
inline bool layer_normalization(const int16_t x[], const int16_t scale[], const int16_t bias[], int32_t length,
                                int32_t epsilon, int16_t y[]) {
    static_assert(MAX_LENGTH <= NORMALISE_MAX, "the sums need 64 bits");
    if (length < 1 || length > MAX_LENGTH || epsilon < 0 || epsilon > EPSILON_MAX) return false;
    int64_t sum = 0, squares = 0;
    for (int32_t i = 0; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_LENGTH)
        sum += x[i];
        squares += (int32_t)x[i] * x[i];
    }
    Normaliser normaliser;
    normaliser.finish(length, sum, squares, epsilon);
    for (int32_t i = 0; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_LENGTH)
        y[i] = scaled_value(normaliser.value(x[i]), scale[i], bias[i]);
    }
    return true;
}

/// int8: `rows` sets of `pixels` pixels each, scale and bias of every value in `multipliers` and `offsets` (see
/// normalise_int8). Not `centred`: RMSNormalization. False, with nothing written, where a size, `epsilon` or a shift is
/// out of range.
inline bool layer_normalization_int8(const int8_t x[], const int32_t in_edges[], const int16_t multipliers[],
                                     const int32_t offsets[], const int32_t out_edges[], int32_t rows, int32_t pixels,
                                     int32_t channels, int32_t epsilon, int32_t centred, int8_t y[]) {
    if (!normalise_legal(rows, pixels, channels, (int64_t)pixels * channels)) return false;
    if (epsilon < 0 || epsilon > (1 << EPSILON_BITS_MAX)) return false;
    if (!legal_edges(in_edges, channels) || !legal_edges(out_edges, channels)) return false;
    for (int32_t row = 0; row < rows; ++row) {
        NPU_TRIPCOUNT(1, 1 << 16)
        const int32_t base = row * pixels * lanes_of(channels);
        const NormaliseSet set = {base, pixels, channels, 0, channels, channels, centred != 0};
        normalise_int8(x, set, in_edges, multipliers, offsets, out_edges, epsilon, y);
    }
    clear_pad_lanes(y, rows * pixels, channels);
    return true;
}

/// bf16: scale and bias are float32 bits of every value of a row, `epsilon` float32 bits.
inline bool layer_normalization_bf16(const uint16_t x[], const uint32_t scale[], const uint32_t bias[], int32_t rows,
                                     int32_t pixels, int32_t channels, int32_t epsilon, int32_t centred, uint16_t y[]) {
    if (!normalise_legal(rows, pixels, channels, (int64_t)pixels * channels)) return false;
    if (epsilon < 0 || (uint32_t)epsilon >= INFINITY_BITS) return false;
    for (int32_t row = 0; row < rows; ++row) {
        NPU_TRIPCOUNT(1, 1 << 16)
        const int32_t base = row * pixels * lanes_of(channels);
        const NormaliseSet set = {base, pixels, channels, 0, channels, channels, centred != 0};
        normalise_bf16(x, set, scale, bias, (uint32_t)epsilon, y);
    }
    clear_pad_lanes(y, rows * pixels, channels);
    return true;
}

}  // namespace hls
}  // namespace npuforge
