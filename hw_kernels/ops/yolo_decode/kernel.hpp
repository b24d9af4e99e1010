// YoloDecode in integers: the values of one anchor at one cell to box, score and class.
#pragma once

#include "fixed_math.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t DECODE_LOG_MAX = 2560;        ///< largest tw, th: 10, with 8 fraction bits; beyond it the size stays
constexpr int32_t DECODE_ANCHOR_MAX = 1 << 16;  ///< 4,096 pixels with 4 fraction bits
constexpr int32_t DECODE_CELL_MAX = 1 << 14;
constexpr int32_t DECODE_STRIDE_MAX = 1 << 8;

/// extent/2 * e^t with 4 fraction bits; t has 8, extent 4.
inline int64_t half_extent(int32_t extent, int16_t t) {
    if (t <= 0) return ((int64_t)extent * exponential_of_minus(-(int32_t)t * 16) + ((int64_t)1 << 30)) >> 31;
    // e^t = 2^(whole + 1) * 2^-(1 - part)
    const int32_t limited = t > DECODE_LOG_MAX ? DECODE_LOG_MAX : t;
    const uint32_t exponent = (uint32_t)limited * (uint32_t)LOG2_E;  // 24 fraction bits, below 15 * 2^24
    const uint32_t whole = exponent >> 24;
    const int64_t factor = power_of_half((1u << 24) - (exponent & 0xFFFFFFu));
    const uint32_t shift = 30u - whole;
    return ((int64_t)extent * factor + ((int64_t)1 << (shift - 1u))) >> shift;
}

/// (sigmoid(t) + cell) * stride with 4 fraction bits; t has 8.
inline int32_t centre_of(int16_t t, int32_t cell, int32_t stride) {
    const int64_t place = sigmoid_fixed((int32_t)t * 16) + ((int64_t)cell << 15);
    return (int32_t)((place * stride + (1 << 10)) >> 11);
}

/// box = corners x1, y1, x2, y2 in pixels with 4 fraction bits; score has 14; label is the first largest class. False,
/// with nothing written, where an argument is out of range.
/// \tparam MAX_CLASSES classes at most \param t tx, ty, tw, th, objectness, classes, 8 fraction bits
/// \param anchor width, height in pixels with 4 fraction bits
template <int MAX_CLASSES>
inline bool yolo_decode(const int16_t t[], const int32_t anchor[2], int32_t column, int32_t row, int32_t stride,
                        int32_t classes, int32_t box[4], int16_t score[1], int32_t label[1]) {
    if (classes < 1 || classes > MAX_CLASSES || stride < 1 || stride > DECODE_STRIDE_MAX) return false;
    if (column < 0 || column > DECODE_CELL_MAX || row < 0 || row > DECODE_CELL_MAX) return false;
    if (anchor[0] < 0 || anchor[0] > DECODE_ANCHOR_MAX || anchor[1] < 0 || anchor[1] > DECODE_ANCHOR_MAX) return false;
    const int32_t x = centre_of(t[0], column, stride), y = centre_of(t[1], row, stride);
    const int64_t half_width = half_extent(anchor[0], t[2]), half_height = half_extent(anchor[1], t[3]);
    box[0] = (int32_t)(x - half_width);
    box[1] = (int32_t)(y - half_height);
    box[2] = (int32_t)(x + half_width);
    box[3] = (int32_t)(y + half_height);
    int32_t best = 0;
    for (int32_t i = 1; i < classes; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(0, MAX_CLASSES)
        best = t[5 + i] > t[5 + best] ? i : best;
    }
    label[0] = best;
    const int64_t product = (int64_t)sigmoid_fixed((int32_t)t[4] * 16) * sigmoid_fixed((int32_t)t[5 + best] * 16);
    score[0] = (int16_t)((product + (1 << 15)) >> 16);
    return true;
}

}  // namespace hls
}  // namespace npuforge
