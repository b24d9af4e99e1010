// NonMaxSuppression in integers, one class: int16 corners, exact comparison of overlaps.
#pragma once

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

}  // namespace hls
}  // namespace npuforge
