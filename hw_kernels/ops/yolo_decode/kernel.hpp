// YoloDecode in integers: the values of one anchor at one cell to box, score and class; a whole map to the rows above a
// score threshold, its logits being int16, or int8 or bf16 as the NPU leaves them in NHWC-16.
#pragma once

#include "edges.hpp"
#include "fixed_math.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t DECODE_BITS = 12;              ///< fraction bits of logits inside
constexpr int32_t DECODE_LOGIT_MAX = 128 << 12;  ///< int8 and bf16 logits are clamped to +-128
constexpr int32_t DECODE_NAN = -2147483647 - 1;  ///< a logit or a corner that is not a number
constexpr int32_t DECODE_INFINITE = 2147483647;  ///< the corner of a box without end
constexpr int16_t DECODE_SCORE_NAN = -32768;
constexpr int32_t DECODE_LOG_MAX = 10 << 12;    ///< largest tw, th: beyond it a box has no end
constexpr int32_t DECODE_ANCHOR_MAX = 1 << 16;  ///< 4,096 pixels with 4 fraction bits
constexpr int32_t DECODE_CELL_MAX = 1 << 14;
constexpr int32_t DECODE_STRIDE_MAX = 1 << 8;
constexpr int32_t DECODE_ANCHORS_MAX = 16;  ///< of one map

/// Logits of a map with 12 fraction bits, from where and how they are stored: int16 with 8.
struct FixedLogits {
    const int16_t* map;
    bool legal(int32_t) const { return true; }
    int32_t at(int32_t pixel, int32_t channel) const { return (int32_t)map[pixel + channel] * 16; }
};

/// int8, a record for each channel: to 12 - shift fraction bits.
struct Int8Logits {
    const int8_t* map;
    const int32_t* records;
    int32_t shift;
    bool legal(int32_t channels) const { return shift >= 0 && shift <= 31 && legal_edges(records, channels); }
    int32_t at(int32_t pixel, int32_t channel) const {
        const int64_t t = fixed_of_int8(map[pixel + channel], read_edge(records[channel]));
        return clamp(t * ((int64_t)1 << shift), -DECODE_LOGIT_MAX, DECODE_LOGIT_MAX);
    }
};

/// bf16; NaN stays one.
struct Bf16Logits {
    const uint16_t* map;
    bool legal(int32_t) const { return true; }
    int32_t at(int32_t pixel, int32_t channel) const {
        const uint16_t t = map[pixel + channel];
        return is_nan_bf16(t) ? DECODE_NAN : fixed_of_bf16(t, DECODE_BITS, DECODE_LOGIT_MAX);
    }
};

/// extent/2 * e^t with 4 fraction bits; t has 12, at most DECODE_LOG_MAX, extent 4.
inline int64_t half_extent(int32_t extent, int32_t t) {
    if (t <= 0) return ((int64_t)extent * exponential_of_minus(-t) + ((int64_t)1 << 30)) >> 31;
    // e^t = 2^(whole + 1) * 2^-(1 - part)
    const uint32_t exponent = (uint32_t)(((int64_t)t * LOG2_E) >> 4);  // 24 fraction bits, below 15 * 2^24
    const uint32_t whole = exponent >> 24;
    const int64_t factor = power_of_half((1u << 24) - (exponent & 0xFFFFFFu));
    const uint32_t shift = 30u - whole;
    return ((int64_t)extent * factor + ((int64_t)1 << (shift - 1u))) >> shift;
}

/// (sigmoid(t) + cell) * stride with 4 fraction bits; t has 12.
inline int32_t centre_of(int32_t t, int32_t cell, int32_t stride) {
    const int64_t place = sigmoid_fixed(t) + ((int64_t)cell << 15);
    return (int32_t)((place * stride + (1 << 10)) >> 11);
}

/// Largest class of the values that begin at `channel`, the first of equal ones; NaN is passed over unless it comes
/// first.
template <int MAX_CLASSES, class Logits>
inline int32_t best_class(const Logits& logits, int32_t pixel, int32_t channel, int32_t classes) {
    int32_t best = 0, largest = logits.at(pixel, channel + 5);
    for (int32_t i = 1; i < classes; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(0, MAX_CLASSES)
        const int32_t t = logits.at(pixel, channel + 5 + i);
        if (t > largest && largest != DECODE_NAN) {
            best = i;
            largest = t;
        }
    }
    return best;
}

/// sigmoid(objectness) * sigmoid(class) with 14 fraction bits; the logits have 12.
inline int32_t score_of(int32_t objectness, int32_t named) {
    if (objectness == DECODE_NAN || named == DECODE_NAN) return DECODE_SCORE_NAN;
    const int64_t product = (int64_t)sigmoid_fixed(objectness) * sigmoid_fixed(named);
    return (int32_t)((product + (1 << 15)) >> 16);
}

/// Low and high corner on one axis in pixels with 4 fraction bits.
inline void corners_of(int32_t place, int32_t size, int32_t cell, int32_t stride, int32_t extent, int32_t& low,
                       int32_t& high) {
    if (place == DECODE_NAN || size == DECODE_NAN) {
        low = DECODE_NAN;
        high = DECODE_NAN;
    } else if (size > DECODE_LOG_MAX && extent > 0) {
        low = -DECODE_INFINITE;
        high = DECODE_INFINITE;
    } else {
        const int32_t centre = centre_of(place, cell, stride);
        const int64_t half = extent > 0 ? half_extent(extent, size) : 0;
        low = (int32_t)(centre - half);
        high = (int32_t)(centre + half);
    }
}

/// Corners x1, y1, x2, y2 of the values that begin at `channel`.
template <class Logits>
inline void box_of(const Logits& logits, int32_t pixel, int32_t channel, const int32_t anchor[2], int32_t column,
                   int32_t row, int32_t stride, int32_t box[4]) {
    corners_of(logits.at(pixel, channel), logits.at(pixel, channel + 2), column, stride, anchor[0], box[0], box[2]);
    corners_of(logits.at(pixel, channel + 1), logits.at(pixel, channel + 3), row, stride, anchor[1], box[1], box[3]);
}

/// One map: rows, columns, anchors in this order; those with a score above `threshold` are written one behind the
/// other. count[0] is how many there are: more than `limit` says that the last ones were left out. False, with nothing
/// written, where an argument is out of range.
/// \tparam MAX_SIDE height and width at most \tparam MAX_CLASSES classes at most
/// \param logits [height][width][lanes], an anchor's 5 + classes values one behind the other; lanes beyond them are not
/// read \param anchors width and height of each in pixels with 4 fraction bits
/// \param threshold 14 fraction bits; -1: all rows \param limit rows that boxes [limit][4], scores and labels have room
/// for
template <int MAX_SIDE, int MAX_CLASSES, class Logits>
inline bool decode_map(const Logits& logits, int32_t height, int32_t width, int32_t lanes, const int32_t anchors[],
                       int32_t anchor_count, int32_t stride, int32_t classes, int32_t threshold, int32_t limit,
                       int32_t boxes[], int16_t scores[], int32_t labels[], int32_t count[1]) {
    static_assert(MAX_SIDE <= DECODE_CELL_MAX, "places of cells have 31 bits");
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
    if (!logits.legal(anchor_count * (5 + classes))) return false;
    int32_t found = 0;
    for (int32_t row = 0; row < height; ++row) {
        NPU_TRIPCOUNT(1, MAX_SIDE)
        for (int32_t column = 0; column < width; ++column) {
            NPU_TRIPCOUNT(1, MAX_SIDE)
            for (int32_t anchor = 0; anchor < anchor_count; ++anchor) {
                NPU_TRIPCOUNT(1, DECODE_ANCHORS_MAX)
                const int32_t pixel = (row * width + column) * lanes, channel = anchor * (5 + classes);
                const int32_t label = best_class<MAX_CLASSES>(logits, pixel, channel, classes);
                const int32_t score = score_of(logits.at(pixel, channel + 4), logits.at(pixel, channel + 5 + label));
                if (threshold >= 0 && score <= threshold) continue;
                if (found < limit) {
                    box_of(logits, pixel, channel, anchors + 2 * anchor, column, row, stride, boxes + 4 * found);
                    scores[found] = (int16_t)score;
                    labels[found] = label;
                }
                ++found;
            }
        }
    }
    count[0] = found;
    return true;
}

/// int16 logits with 8 fraction bits; the other arguments are `decode_map`'s.
template <int MAX_SIDE, int MAX_CLASSES>
inline bool yolo_decode_map(const int16_t map[], int32_t height, int32_t width, int32_t lanes, const int32_t anchors[],
                            int32_t anchor_count, int32_t stride, int32_t classes, int32_t threshold, int32_t limit,
                            int32_t boxes[], int16_t scores[], int32_t labels[], int32_t count[1]) {
    return decode_map<MAX_SIDE, MAX_CLASSES>(FixedLogits{map}, height, width, lanes, anchors, anchor_count, stride,
                                             classes, threshold, limit, boxes, scores, labels, count);
}

/// int8 logits in NHWC-16. \param records of each channel: to 12 - shift fraction bits
template <int MAX_SIDE, int MAX_CLASSES>
inline bool yolo_decode_int8(const int8_t map[], const int32_t records[], int32_t shift, int32_t height, int32_t width,
                             int32_t lanes, const int32_t anchors[], int32_t anchor_count, int32_t stride,
                             int32_t classes, int32_t threshold, int32_t limit, int32_t boxes[], int16_t scores[],
                             int32_t labels[], int32_t count[1]) {
    return decode_map<MAX_SIDE, MAX_CLASSES>(Int8Logits{map, records, shift}, height, width, lanes, anchors,
                                             anchor_count, stride, classes, threshold, limit, boxes, scores, labels,
                                             count);
}

/// bf16 logits in NHWC-16.
template <int MAX_SIDE, int MAX_CLASSES>
inline bool yolo_decode_bf16(const uint16_t map[], int32_t height, int32_t width, int32_t lanes,
                             const int32_t anchors[], int32_t anchor_count, int32_t stride, int32_t classes,
                             int32_t threshold, int32_t limit, int32_t boxes[], int16_t scores[], int32_t labels[],
                             int32_t count[1]) {
    return decode_map<MAX_SIDE, MAX_CLASSES>(Bf16Logits{map}, height, width, lanes, anchors, anchor_count, stride,
                                             classes, threshold, limit, boxes, scores, labels, count);
}

}  // namespace hls
}  // namespace npuforge
