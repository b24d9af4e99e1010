// Softmax in integers: int16 logits with 8 fraction bits to probabilities with 14.
#pragma once

#include "fixed_math.hpp"

namespace npuforge {
namespace hls {

/// y[i] = e^x[i] / sum of e^x. False, with nothing written, where `length` is not 1 .. MAX_LENGTH.
/// \tparam MAX_LENGTH values at most
template <int MAX_LENGTH>
inline bool softmax(const int16_t x[], int32_t length, int16_t y[]) {
    if (length < 1 || length > MAX_LENGTH) return false;
    int16_t largest = x[0];
    for (int32_t i = 1; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(0, MAX_LENGTH)
        largest = x[i] > largest ? x[i] : largest;
    }
    int32_t powers[MAX_LENGTH];
    int64_t sum = 0;  // at least 2^30: the largest logit's power
    for (int32_t i = 0; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_LENGTH)
        powers[i] = exponential_of_minus(((int32_t)largest - x[i]) * 16);
        sum += powers[i];
    }
    for (int32_t i = 0; i < length; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_LENGTH)
        y[i] = (int16_t)divide_rounded((int64_t)powers[i] << 14, sum);
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
