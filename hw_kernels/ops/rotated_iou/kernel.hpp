// RotatedIou in integers: every pair of two lists of boxes; and of lists in the NPU's int8 and bf16.
#pragma once

#include "rotated_lists.hpp"

namespace npuforge {
namespace hls {

/// y[i][j] = overlap of a[i] and b[j] with 14 fraction bits. False, with nothing written, where a count is out of
/// range.
/// \tparam MAX_BOXES boxes of a list at most
template <int MAX_BOXES>
inline bool rotated_iou(const int16_t a[], int32_t count_a, const int16_t b[], int32_t count_b, int16_t y[]) {
    if (count_a < 0 || count_a > MAX_BOXES || count_b < 0 || count_b > MAX_BOXES) return false;
    for (int32_t i = 0; i < count_a; ++i) {
        NPU_TRIPCOUNT(0, MAX_BOXES)
        for (int32_t j = 0; j < count_b; ++j) {
            NPU_TRIPCOUNT(0, MAX_BOXES)
            y[i * count_b + j] = rotated_overlap(a + i * BOX_VALUES, b + j * BOX_VALUES);
        }
    }
    return true;
}

/// y [count_a][count_b in lanes] = every pair's overlap as `leave` has it.
template <int MAX_BOXES, class Boxes, class Leave, class T>
inline bool iou_of_lists(const Boxes& a, int32_t count_a, const Boxes& b, int32_t count_b, const Leave& leave, T y[]) {
    if (count_a < 0 || count_a > MAX_BOXES || count_b < 0 || count_b > MAX_BOXES) return false;
    if (!a.legal() || !b.legal() || !leave.legal(count_b)) return false;
    const int32_t lanes = lanes_of(count_b);
    for (int32_t i = 0; i < count_a; ++i) {
        NPU_TRIPCOUNT(0, MAX_BOXES)
        for (int32_t j = 0; j < count_b; ++j) {
            NPU_TRIPCOUNT(0, MAX_BOXES)
            y[i * lanes + j] = leave.of(pair_overlap(a, i, b, j), j);
        }
    }
    clear_pad_lanes(y, count_a, count_b);
    return true;
}

struct Int8Overlaps {
    const int32_t* records;
    bool legal(int32_t columns) const { return legal_edges(records, columns); }
    int8_t of(int16_t overlap, int32_t column) const { return int8_of_fixed(overlap, read_edge(records[column])); }
};

struct Bf16Overlaps {
    bool legal(int32_t) const { return true; }
    uint16_t of(int16_t overlap, int32_t) const { return bf16_of_fixed(overlap, 14); }
};

/// a [count_a][16], b [count_b][16] to y [count_a][count_b in lanes]. False, with nothing written, where a count, a
/// record or a shift is out of range.
/// \param of_a, of_b records [5] and the centres' shift, as Int8Boxes takes them \param out_of records [count_b]: 14
/// bits to int8
template <int MAX_BOXES>
inline bool rotated_iou_int8(const int8_t a[], int32_t count_a, const int32_t of_a[], int32_t shift_a, const int8_t b[],
                             int32_t count_b, const int32_t of_b[], int32_t shift_b, const int32_t out_of[],
                             int8_t y[]) {
    return shift_a == shift_b && iou_of_lists<MAX_BOXES>(Int8Boxes{a, of_a, shift_a}, count_a,
                                                         Int8Boxes{b, of_b, shift_b}, count_b, Int8Overlaps{out_of}, y);
}

/// The same in bf16. 0 where a box has a value that is NaN or infinite.
template <int MAX_BOXES>
inline bool rotated_iou_bf16(const uint16_t a[], int32_t count_a, const uint16_t b[], int32_t count_b, uint16_t y[]) {
    return iou_of_lists<MAX_BOXES>(Bf16Boxes{a}, count_a, Bf16Boxes{b}, count_b, Bf16Overlaps{}, y);
}

}  // namespace hls
}  // namespace npuforge
