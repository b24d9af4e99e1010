// LayerNormalization in integers: values and bias with 8 fraction bits, scale with 12.
#pragma once

#include "normalise.hpp"

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

}  // namespace hls
}  // namespace npuforge
