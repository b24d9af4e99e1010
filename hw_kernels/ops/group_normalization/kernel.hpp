// GroupNormalization in integers, one group: values and bias with 8 fraction bits, scale with 12.
#pragma once

#include "normalise.hpp"

namespace npuforge {
namespace hls {

/// y[c][p] = scale[c] * (x[c][p] - mean) / sqrt(variance + epsilon) + bias[c], mean and variance over the group's
/// channels and pixels. False, with nothing written, where sizes or `epsilon` are out of range.
/// \tparam MAX_VALUES channels times pixels at most \param epsilon 16 fraction bits
template <int MAX_VALUES>
inline bool group_normalization(const int16_t x[], const int16_t scale[], const int16_t bias[], int32_t channels,
                                int32_t pixels, int32_t epsilon, int16_t y[]) {
    static_assert(MAX_VALUES <= NORMALISE_MAX, "the sums need 64 bits");
    if (channels < 1 || pixels < 1 || channels > MAX_VALUES || pixels > MAX_VALUES / channels) return false;
    if (epsilon < 0 || epsilon > EPSILON_MAX) return false;
    const int32_t count = channels * pixels;
    int64_t sum = 0, squares = 0;
    for (int32_t i = 0; i < count; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_VALUES)
        sum += x[i];
        squares += (int32_t)x[i] * x[i];
    }
    Normaliser normaliser;
    normaliser.finish(count, sum, squares, epsilon);
    for (int32_t channel = 0; channel < channels; ++channel) {
        NPU_TRIPCOUNT(1, MAX_VALUES)
        for (int32_t pixel = 0; pixel < pixels; ++pixel) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, MAX_VALUES)
            const int32_t i = channel * pixels + pixel;
            y[i] = scaled_value(normaliser.value(x[i]), scale[channel], bias[channel]);
        }
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
