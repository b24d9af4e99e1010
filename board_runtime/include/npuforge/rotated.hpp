// Rotated boxes (cx, cy, width, height, angle in radians): intersection over union by clipping one box with the edges
// of the other. In double, about the first box's centre; no memory is allocated.
#pragma once

#include <cmath>

#include "npuforge/polygon.hpp"

namespace npuforge {

/// Corners of a box in order around it, relative to (origin_x, origin_y).
NPUFORGE_BOTH inline void box_corners(const float* box, double origin_x, double origin_y, Point corner[4]) {
    const double cosine = std::cos(static_cast<double>(box[4])), sine = std::sin(static_cast<double>(box[4]));
    const double half_w = std::fabs(static_cast<double>(box[2])) / 2,
                 half_h = std::fabs(static_cast<double>(box[3])) / 2;
    for (int i = 0; i < 4; ++i) {
        const double x = i == 1 || i == 2 ? half_w : -half_w, y = i >= 2 ? half_h : -half_h;
        corner[i] = {x * cosine - y * sine + box[0] - origin_x, x * sine + y * cosine + box[1] - origin_y};
    }
}

/// Intersection over union; 0 where either box has no area. Clipping a quadrilateral by four lines leaves at most 8
/// corners.
NPUFORGE_BOTH inline double rotated_overlap(const float* a, const float* b) {
    const double area_a = std::fabs(static_cast<double>(a[2]) * a[3]),
                 area_b = std::fabs(static_cast<double>(b[2]) * b[3]);
    if (!(area_a > 0.0 && area_b > 0.0)) return 0.0;
    const double distance = std::hypot(static_cast<double>(a[0]) - b[0], static_cast<double>(a[1]) - b[1]);
    if (distance > 0.5 * (std::hypot(static_cast<double>(a[2]), static_cast<double>(a[3])) +
                          std::hypot(static_cast<double>(b[2]), static_cast<double>(b[3]))))
        return 0.0;
    Point polygon[16], clipped[16], window[4];
    box_corners(a, a[0], a[1], polygon);
    box_corners(b, a[0], a[1], window);
    int count = 4;
    for (int e = 0; e < 4 && count > 0; ++e) {
        count = clip_by_edge(polygon, count, window[e], window[(e + 1) % 4], clipped, 16);
        for (int i = 0; i < count; ++i) polygon[i] = clipped[i];
    }
    double twice = 0.0;
    for (int i = 1; i + 1 < count; ++i)
        twice += (polygon[i].x - polygon[0].x) * (polygon[i + 1].y - polygon[0].y) -
                 (polygon[i + 1].x - polygon[0].x) * (polygon[i].y - polygon[0].y);
    const double smaller = area_b < area_a ? area_b : area_a, clipped_area = 0.0 < 0.5 * twice ? 0.5 * twice : 0.0;
    const double common = smaller < clipped_area ? smaller : clipped_area;
    return common / (area_a + area_b - common);
}

}  // namespace npuforge
