// RotatedNms in integers, one class; int16, or the NPU's int8 and bf16.
#pragma once

#include "class_scores.hpp"
#include "rotated_lists.hpp"
#include "suppress.hpp"

namespace npuforge {
namespace hls {

/// Boxes [n][5], as `rotated_overlap` takes them.
struct RotatedBoxes {
    static bool exceeds(const int16_t boxes[], int32_t i, int32_t j, int32_t threshold) {
        return rotated_overlap(boxes + BOX_VALUES * i, boxes + BOX_VALUES * j) > threshold;
    }
};

/// kept: indices of the boxes that stay, best score first; kept_count: their number.
/// \tparam MAX_BOXES boxes at most \param threshold overlap with 14 fraction bits
template <int MAX_BOXES>
inline bool rotated_nms(const int16_t boxes[], const int16_t scores[], int32_t count, int32_t threshold, int32_t lowest,
                        int32_t limit, int32_t kept[], int32_t kept_count[1]) {
    return suppress<MAX_BOXES, RotatedBoxes>(boxes, scores, count, threshold, lowest, limit, kept, kept_count);
}

/// Boxes and scores of one class. \tparam Boxes Int8Boxes or Bf16Boxes
template <class Boxes, class T>
struct RotatedList {
    Boxes boxes;
    ClassScores<T> scores;
    int32_t threshold;
    int32_t score(int32_t i) const { return scores.of(i); }
    bool suppresses(int32_t i, int32_t j) const { return pair_overlap(boxes, i, boxes, j) > threshold; }
};

/// int8 boxes [count][16] and scores [count][classes in lanes], the scores of a class having one scale. False, with
/// nothing written, where an argument is out of range.
/// \param records, shift as Int8Boxes takes them \param lowest only int8 scores above it count
template <int MAX_BOXES>
inline bool rotated_nms_int8(const int8_t boxes[], const int32_t records[], int32_t shift, const int8_t scores[],
                             int32_t count, int32_t classes, int32_t label, int32_t threshold, int32_t lowest,
                             int32_t limit, int32_t kept[], int32_t kept_count[1]) {
    const Int8Boxes list{boxes, records, shift};
    if (!legal_suppression(classes, label, threshold, limit) || !list.legal()) return false;
    const ClassScores<int8_t> of_class{scores, lanes_of(classes), label};
    return suppress_list<MAX_BOXES>(RotatedList<Int8Boxes, int8_t>{list, of_class, threshold}, count, lowest, limit,
                                    kept, kept_count);
}

/// The same in bf16. \param lowest in the order of `order_of`
template <int MAX_BOXES>
inline bool rotated_nms_bf16(const uint16_t boxes[], const uint16_t scores[], int32_t count, int32_t classes,
                             int32_t label, int32_t threshold, int32_t lowest, int32_t limit, int32_t kept[],
                             int32_t kept_count[1]) {
    if (!legal_suppression(classes, label, threshold, limit)) return false;
    const ClassScores<uint16_t> of_class{scores, lanes_of(classes), label};
    return suppress_list<MAX_BOXES>(RotatedList<Bf16Boxes, uint16_t>{Bf16Boxes{boxes}, of_class, threshold}, count,
                                    lowest, limit, kept, kept_count);
}

}  // namespace hls
}  // namespace npuforge
