// RotatedIou in integers: every pair of two lists of boxes.
#pragma once

#include "rotated_box.hpp"

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

}  // namespace hls
}  // namespace npuforge
