// RotatedNms in integers, one class.
#pragma once

#include "rotated_box.hpp"
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

}  // namespace hls
}  // namespace npuforge
