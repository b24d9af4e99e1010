// Scores of one class as the NPU holds them, int8 or bf16 in NHWC-16, one box behind the other: integers in their
// order.
#pragma once

#include "edges.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t SCORE_CLASSES_MAX = 1024;
constexpr int32_t OVERLAP_ONE = 1 << 14;  ///< thresholds have 14 fraction bits

/// Whether kernels of suppression take these arguments. \param threshold -1: all boxes overlap by more
inline bool legal_suppression(int32_t classes, int32_t label, int32_t threshold, int32_t limit) {
    return classes >= 1 && classes <= SCORE_CLASSES_MAX && label >= 0 && label < classes && threshold >= -1 &&
           threshold <= OVERLAP_ONE && limit >= 0;
}

/// A class has one scale, so that its int8 scores are in order as they are.
inline int32_t order_of(int8_t score) {
    NPU_INLINE
    return score;
}

/// bf16: the magnitude's bits with the sign; NaN below everything, denormals 0.
inline int32_t order_of(uint16_t score) {
    NPU_INLINE
    const int32_t magnitude = score & 0x7fff;
    if (magnitude > 0x7f80) return -32768;
    if (magnitude < 0x80) return 0;
    return (score >> 15) != 0 ? -magnitude : magnitude;
}

/// Scores [count][classes in lanes] of class `label`. \tparam T int8_t, or uint16_t for bf16
template <class T>
struct ClassScores {
    const T* scores;
    int32_t lanes;
    int32_t label;
    int32_t of(int32_t box) const { return order_of(scores[box * lanes + label]); }
};

}  // namespace hls
}  // namespace npuforge
