// Non-maximum suppression of one class: the best boxes that overlap no better one too much, best first, ties by index.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

/// Writes the indices of the kept boxes and their number. False, with nothing written, where `count` is out of range.
/// \tparam List has `int32_t score(int32_t i)` and `bool suppresses(int32_t i, int32_t j)`: do boxes i and j overlap by
/// more than the threshold?
/// \param lowest only scores above it count \param limit boxes kept at most
template <int MAX_BOXES, class List>
inline bool suppress_list(const List& list, int32_t count, int32_t lowest, int32_t limit, int32_t kept[],
                          int32_t kept_count[1]) {
    if (count < 0 || count > MAX_BOXES) return false;
    bool waiting[MAX_BOXES];
    for (int32_t i = 0; i < count; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(0, MAX_BOXES)
        waiting[i] = list.score(i) > lowest;
    }
    int32_t found = 0;
    for (int32_t round = 0; round < count; ++round) {
        NPU_TRIPCOUNT(0, MAX_BOXES)
        int32_t best = -1;
        for (int32_t i = 0; i < count; ++i) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(0, MAX_BOXES)
            if (waiting[i] && (best < 0 || list.score(i) > list.score(best))) best = i;
        }
        if (best < 0 || found >= limit) break;
        kept[found] = best;
        ++found;
        waiting[best] = false;
        for (int32_t i = 0; i < count; ++i) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(0, MAX_BOXES)
            if (waiting[i] && list.suppresses(best, i)) waiting[i] = false;
        }
    }
    kept_count[0] = found;
    return true;
}

/// Boxes and scores in int16. \tparam Overlap has `static bool exceeds(const int16_t boxes[], int32_t i, int32_t j,
/// int32_t threshold)`
template <class Overlap>
struct FixedList {
    const int16_t* boxes;
    const int16_t* scores;
    int32_t threshold;
    int32_t score(int32_t i) const { return scores[i]; }
    bool suppresses(int32_t i, int32_t j) const { return Overlap::exceeds(boxes, i, j, threshold); }
};

/// The same over `FixedList`.
template <int MAX_BOXES, class Overlap>
inline bool suppress(const int16_t boxes[], const int16_t scores[], int32_t count, int32_t threshold, int32_t lowest,
                     int32_t limit, int32_t kept[], int32_t kept_count[1]) {
    return suppress_list<MAX_BOXES>(FixedList<Overlap>{boxes, scores, threshold}, count, lowest, limit, kept,
                                    kept_count);
}

}  // namespace hls
}  // namespace npuforge
