// NonMaxSuppression in integers, one class, exact comparison of overlaps: int16 corners, or the NPU's int8 and bf16.
#pragma once

#include "class_scores.hpp"
#include "suppress.hpp"

namespace npuforge {
namespace hls {

/// Corners [n][4]: low and high in both axes (x1, y1, x2, y2 or y1, x1, y2, x2), any unit.
struct CornerBoxes {
    static bool exceeds(const int16_t corners[], int32_t i, int32_t j, int32_t threshold) {
        const int16_t *a = corners + 4 * i, *b = corners + 4 * j;
        const int64_t width = (int64_t)(a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]);
        const int64_t height = (int64_t)(a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]);
        const int64_t area_a = area(a), area_b = area(b);
        if (width <= 0 || height <= 0 || area_a <= 0 || area_b <= 0) return threshold < 0;
        const int64_t common = width * height;
        return common * (1 << 14) > threshold * (area_a + area_b - common);
    }

    static int64_t area(const int16_t box[4]) {
        const int64_t width = (int64_t)box[2] - box[0], height = (int64_t)box[3] - box[1];
        return width > 0 && height > 0 ? width * height : 0;
    }
};

/// kept: indices of the boxes that stay, best score first; kept_count: their number.
/// \tparam MAX_BOXES boxes at most \param threshold overlap with 14 fraction bits
template <int MAX_BOXES>
inline bool non_max_suppression(const int16_t corners[], const int16_t scores[], int32_t count, int32_t threshold,
                                int32_t lowest, int32_t limit, int32_t kept[], int32_t kept_count[1]) {
    return suppress<MAX_BOXES, CornerBoxes>(corners, scores, count, threshold, lowest, limit, kept, kept_count);
}

constexpr int CORNER_BITS = 21;  ///< of the largest bf16 coordinate of a pair
constexpr int32_t CORNER_MAX = 1 << 22;

/// What a box covers on one axis, in any unit; below 2^24.
struct Span {
    int64_t low;
    int64_t high;
};

/// From two corners, or, `centre`, from the middle and the size, in half units.
inline Span span_of(int64_t p, int64_t q, bool centre) {
    const int64_t size = q < 0 ? -q : q;
    if (centre) return Span{2 * p - size, 2 * p + size};
    return p < q ? Span{p, q} : Span{q, p};
}

/// Do two boxes overlap by more than `threshold` (14 fraction bits)?
inline bool spans_exceed(const Span a[2], const Span b[2], int32_t threshold) {
    int64_t common = 1, area_a = 1, area_b = 1;
    for (int axis = 0; axis < 2; ++axis) {
        const int64_t low = a[axis].low > b[axis].low ? a[axis].low : b[axis].low;
        const int64_t high = a[axis].high < b[axis].high ? a[axis].high : b[axis].high;
        common = low < high ? common * (high - low) : 0;
        area_a *= a[axis].high - a[axis].low;
        area_b *= b[axis].high - b[axis].low;
    }
    if (common == 0) return threshold < 0;
    return common * OVERLAP_ONE > threshold * (area_a + area_b - common);
}

/// int8 boxes; records [4] lead to one unit for each axis, a channel's being 2^shift of it. Each pair and axis has a
/// unit of its own where coordinates are longer than CORNER_BITS.
struct Int8Corners {
    const int8_t* boxes;
    const int32_t* records;
    const int32_t* shifts;
    bool centre;
    bool legal() const {
        bool legal = legal_edges(records, 4);
        for (int c = 0; c < 4; ++c) legal = legal && shifts[c] >= 0 && shifts[c] <= 32;
        return legal;
    }
    int64_t at(int32_t box, int channel) const {
        const int64_t fixed = fixed_of_int8(boxes[box * LANES + channel], read_edge(records[channel]));
        return fixed * ((int64_t)1 << shifts[channel]);
    }
    bool exceeds(int32_t i, int32_t j, int32_t threshold) const {
        Span a[2] = {}, b[2] = {};
        for (int axis = 0; axis < 2; ++axis) {
            int64_t values[4] = {at(i, axis), at(i, axis + 2), at(j, axis), at(j, axis + 2)};
            uint64_t largest = 0;
            for (int k = 0; k < 4; ++k) {
                const uint64_t magnitude = (uint64_t)(values[k] < 0 ? -values[k] : values[k]);
                largest = magnitude > largest ? magnitude : largest;
            }
            const int length = 64 - leading_zeros_64(largest);
            const int drop = length > CORNER_BITS ? length - CORNER_BITS : 0;
            for (int k = 0; k < 4; ++k) values[k] = round_shift(values[k], drop);
            a[axis] = span_of(values[0], values[1], centre);
            b[axis] = span_of(values[2], values[3], centre);
        }
        return spans_exceed(a, b, threshold);
    }
};

/// bf16 boxes; each pair and axis has a unit of its own. A box with a value that is NaN or infinite overlaps none.
struct Bf16Corners {
    const uint16_t* boxes;
    bool centre;
    bool legal() const { return true; }
    bool exceeds(int32_t i, int32_t j, int32_t threshold) const {
        Span a[2] = {}, b[2] = {};
        bool finite = true;
        for (int axis = 0; axis < 2; ++axis) {
            const uint16_t values[4] = {boxes[i * LANES + axis], boxes[i * LANES + axis + 2], boxes[j * LANES + axis],
                                        boxes[j * LANES + axis + 2]};
            int exponent = 0, fixed[4] = {};
            for (int k = 0; k < 4; ++k) {
                const int of_value = (int)exponent_of_bf16(values[k]);
                exponent = of_value > exponent ? of_value : exponent;
            }
            finite = finite && exponent != 255;
            for (int k = 0; k < 4; ++k) fixed[k] = fixed_of_bf16(values[k], 126 + CORNER_BITS - exponent, CORNER_MAX);
            a[axis] = span_of(fixed[0], fixed[1], centre);
            b[axis] = span_of(fixed[2], fixed[3], centre);
        }
        return finite ? spans_exceed(a, b, threshold) : threshold < 0;
    }
};

/// Boxes and scores of one class. \tparam Corners Int8Corners or Bf16Corners
template <class Corners, class T>
struct CornerList {
    Corners corners;
    ClassScores<T> scores;
    int32_t threshold;
    int32_t score(int32_t i) const { return scores.of(i); }
    bool suppresses(int32_t i, int32_t j) const { return corners.exceeds(i, j, threshold); }
};

/// int8 boxes [count][16] and scores [count][classes in lanes], the scores of a class having one scale. False, with
/// nothing written, where an argument is out of range.
/// \param records, shifts as Int8Corners takes them \param centre 1: boxes are (x centre, y centre, width, height), 0:
/// corners in any order \param lowest only int8 scores above it count
template <int MAX_BOXES>
inline bool non_max_suppression_int8(const int8_t boxes[], const int32_t records[], const int32_t shifts[],
                                     int32_t centre, const int8_t scores[], int32_t count, int32_t classes,
                                     int32_t label, int32_t threshold, int32_t lowest, int32_t limit, int32_t kept[],
                                     int32_t kept_count[1]) {
    const Int8Corners corners{boxes, records, shifts, centre == 1};
    if (!legal_suppression(classes, label, threshold, limit) || centre < 0 || centre > 1) return false;
    if (!corners.legal()) return false;
    const ClassScores<int8_t> of_class{scores, lanes_of(classes), label};
    return suppress_list<MAX_BOXES>(CornerList<Int8Corners, int8_t>{corners, of_class, threshold}, count, lowest, limit,
                                    kept, kept_count);
}

/// The same in bf16. \param lowest in the order of `order_of`
template <int MAX_BOXES>
inline bool non_max_suppression_bf16(const uint16_t boxes[], int32_t centre, const uint16_t scores[], int32_t count,
                                     int32_t classes, int32_t label, int32_t threshold, int32_t lowest, int32_t limit,
                                     int32_t kept[], int32_t kept_count[1]) {
    if (!legal_suppression(classes, label, threshold, limit) || centre < 0 || centre > 1) return false;
    const ClassScores<uint16_t> of_class{scores, lanes_of(classes), label};
    const CornerList<Bf16Corners, uint16_t> list{Bf16Corners{boxes, centre == 1}, of_class, threshold};
    return suppress_list<MAX_BOXES>(list, count, lowest, limit, kept, kept_count);
}

}  // namespace hls
}  // namespace npuforge
