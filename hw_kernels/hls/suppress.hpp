// Non-maximum suppression of one class: the best boxes that overlap no better one too much, best first, ties by index.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

/// Writes the indices of the kept boxes and their number. False, with nothing written, where `boxes` is out of range.
/// \tparam Overlap has `static bool exceeds(const int16_t boxes[], int32_t i, int32_t j, int32_t threshold)`: do boxes
/// i and j overlap by more?
/// \param lowest only scores above it count \param limit boxes kept at most
template <int MAX_BOXES, class Overlap>
inline bool suppress(const int16_t boxes[], const int16_t scores[], int32_t count, int32_t threshold, int32_t lowest,
                     int32_t limit, int32_t kept[], int32_t kept_count[1]) {
    if (count < 0 || count > MAX_BOXES) return false;
    bool waiting[MAX_BOXES];
    for (int32_t i = 0; i < count; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(0, MAX_BOXES)
        waiting[i] = scores[i] > lowest;
    }
    int32_t found = 0;
    for (int32_t round = 0; round < count; ++round) {
        NPU_TRIPCOUNT(0, MAX_BOXES)
        int32_t best = -1;
        for (int32_t i = 0; i < count; ++i) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(0, MAX_BOXES)
            if (waiting[i] && (best < 0 || scores[i] > scores[best])) best = i;
        }
        if (best < 0 || found >= limit) break;
        kept[found] = best;
        ++found;
        waiting[best] = false;
        for (int32_t i = 0; i < count; ++i) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(0, MAX_BOXES)
            if (waiting[i] && Overlap::exceeds(boxes, best, i, threshold)) waiting[i] = false;
        }
    }
    kept_count[0] = found;
    return true;
}

}  // namespace hls
}  // namespace npuforge
