// YoloDecode in integers: the values of one anchor at one cell to box, score and class; and a whole map to the rows
// above a score threshold.
#pragma once

#include "fixed_math.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t DECODE_LOG_MAX = 2560;        ///< largest tw, th: 10, with 8 fraction bits; beyond it the size stays
constexpr int32_t DECODE_ANCHOR_MAX = 1 << 16;  ///< 4,096 pixels with 4 fraction bits
constexpr int32_t DECODE_CELL_MAX = 1 << 14;
constexpr int32_t DECODE_STRIDE_MAX = 1 << 8;
constexpr int32_t DECODE_ANCHORS_MAX = 16;  ///< of one map

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

/// Largest class of an anchor's values, the first of equal ones.
template <int MAX_CLASSES>
inline int32_t best_class(const int16_t t[], int32_t classes) {
    int32_t best = 0;
    for (int32_t i = 1; i < classes; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(0, MAX_CLASSES)
        best = t[5 + i] > t[5 + best] ? i : best;
    }
    return best;
}

/// sigmoid(objectness) * sigmoid(class) with 14 fraction bits; the values have 8.
inline int32_t score_of(int16_t objectness, int16_t named) {
    const int64_t product = (int64_t)sigmoid_fixed((int32_t)objectness * 16) * sigmoid_fixed((int32_t)named * 16);
    return (int32_t)((product + (1 << 15)) >> 16);
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
    label[0] = best_class<MAX_CLASSES>(t, classes);
    score[0] = (int16_t)score_of(t[4], t[5 + label[0]]);
    return true;
}

/// One map: rows, columns, anchors in this order; those with a score above `threshold` are written one behind the
/// other. count[0] is how many there are: more than `limit` says that the last ones were left out. False, with nothing
/// written, where an argument is out of range.
/// \tparam MAX_SIDE height and width at most \tparam MAX_CLASSES classes at most
/// \param map [height][width][lanes], an anchor's 5 + classes values one behind the other; lanes beyond them are not
/// read
/// \param anchors width and height of each, as `yolo_decode` takes them \param threshold 14 fraction bits; -1: all rows
/// \param limit rows that boxes [limit][4], scores and labels have room for
template <int MAX_SIDE, int MAX_CLASSES>
inline bool yolo_decode_map(const int16_t map[], int32_t height, int32_t width, int32_t lanes, const int32_t anchors[],
                            int32_t anchor_count, int32_t stride, int32_t classes, int32_t threshold, int32_t limit,
                            int32_t boxes[], int16_t scores[], int32_t labels[], int32_t count[1]) {
    if (height < 1 || height > MAX_SIDE || width < 1 || width > MAX_SIDE) return false;
    if (classes < 1 || classes > MAX_CLASSES || stride < 1 || stride > DECODE_STRIDE_MAX) return false;
    if (anchor_count < 1 || anchor_count > DECODE_ANCHORS_MAX || lanes < anchor_count * (5 + classes)) return false;
    if (lanes > DECODE_ANCHORS_MAX * (5 + MAX_CLASSES) + 15) return false;
    if (threshold < -1 || threshold > (1 << 14) || limit < 0 || limit > MAX_SIDE * MAX_SIDE * DECODE_ANCHORS_MAX)
        return false;
    for (int32_t i = 0; i < 2 * anchor_count; ++i) {
        NPU_TRIPCOUNT(2, 2 * DECODE_ANCHORS_MAX)
        if (anchors[i] < 0 || anchors[i] > DECODE_ANCHOR_MAX) return false;
    }
    int32_t found = 0;
    for (int32_t row = 0; row < height; ++row) {
        NPU_TRIPCOUNT(1, MAX_SIDE)
        for (int32_t column = 0; column < width; ++column) {
            NPU_TRIPCOUNT(1, MAX_SIDE)
            for (int32_t anchor = 0; anchor < anchor_count; ++anchor) {
                NPU_TRIPCOUNT(1, DECODE_ANCHORS_MAX)
                const int16_t* t = map + (row * width + column) * lanes + anchor * (5 + classes);
                if (score_of(t[4], t[5 + best_class<MAX_CLASSES>(t, classes)]) <= threshold) continue;
                if (found < limit)
                    yolo_decode<MAX_CLASSES>(t, anchors + 2 * anchor, column, row, stride, classes, boxes + 4 * found,
                                             scores + found, labels + found);
                ++found;
            }
        }
    }
    count[0] = found;
    return true;
}

}  // namespace hls
}  // namespace npuforge
