// Overlap of rotated boxes in integers: one box clipped by the four edges of the other (Sutherland and Hodgman 1974),
// area by the shoelace formula. Boxes are (cx, cy, width, height) with 4 fraction bits and an angle, a turn as 2^16.
#pragma once

#include "cordic.hpp"

namespace npuforge {
namespace hls {

constexpr int BOX_VALUES = 5;
/// A convex polygon of 4 corners gains one with each of 4 clips; rounding may bend it, so that a clip gains two.
constexpr int POLYGON_MAX = 12;

/// Corners with 8 fraction bits, about the first box's centre.
struct Polygon {
    int64_t x[POLYGON_MAX] = {};
    int64_t y[POLYGON_MAX] = {};
    int count = 0;

    void add(int64_t px, int64_t py) {
        if (count >= POLYGON_MAX) return;
        x[count] = px;
        y[count] = py;
        ++count;
    }
};

inline int32_t box_side(int16_t value) { return value < 0 ? -(int32_t)value : value; }

/// The corners of a box whose centre lies at (dx, dy), 4 fraction bits, counter-clockwise.
inline Polygon box_corners(const int16_t box[BOX_VALUES], int32_t dx, int32_t dy) {
    constexpr int SIGN_X[4] = {-1, 1, 1, -1}, SIGN_Y[4] = {-1, -1, 1, 1};
    int16_t sine = 0, cosine = 0;
    cordic_rotate(box[4], sine, cosine);
    const int64_t width = box_side(box[2]), height = box_side(box[3]);
    Polygon corners;
    for (int i = 0; i < 4; ++i) {
        const int64_t u = SIGN_X[i] * width, v = SIGN_Y[i] * height;
        // Half of it, from 4 + 14 fraction bits to 8.
        corners.add((int64_t)dx * 16 + ((u * cosine - v * sine + (1 << 10)) >> 11),
                    (int64_t)dy * 16 + ((u * sine + v * cosine + (1 << 10)) >> 11));
    }
    return corners;
}

/// The part of a polygon on the left of the line from corner `from` of `window` to the next.
inline Polygon clip_polygon(const Polygon& polygon, const Polygon& window, int from) {
    const int to = (from + 1) & 3;
    const int64_t edge_x = window.x[to] - window.x[from], edge_y = window.y[to] - window.y[from];
    int64_t side[POLYGON_MAX] = {};
    for (int i = 0; i < polygon.count; ++i) {
        NPU_TRIPCOUNT(0, POLYGON_MAX)
        side[i] = edge_x * (polygon.y[i] - window.y[from]) - edge_y * (polygon.x[i] - window.x[from]);
    }
    Polygon kept;
    for (int i = 0; i < polygon.count; ++i) {
        NPU_TRIPCOUNT(0, POLYGON_MAX)
        const int j = i + 1 < polygon.count ? i + 1 : 0;
        if (side[i] >= 0) kept.add(polygon.x[i], polygon.y[i]);
        if ((side[i] > 0 && side[j] < 0) || (side[i] < 0 && side[j] > 0)) {
            const int64_t whole = side[i] - side[j];
            kept.add(polygon.x[i] + (polygon.x[j] - polygon.x[i]) * side[i] / whole,
                     polygon.y[i] + (polygon.y[j] - polygon.y[i]) * side[i] / whole);
        }
    }
    return kept;
}

/// Twice the area with 16 fraction bits; 0 for fewer than three corners.
inline int64_t twice_area(const Polygon& polygon) {
    if (polygon.count < 3) return 0;
    int64_t sum = 0;
    for (int i = 0; i < polygon.count; ++i) {
        NPU_TRIPCOUNT(3, POLYGON_MAX)
        const int j = i + 1 < polygon.count ? i + 1 : 0;
        sum += (polygon.x[i] - polygon.x[0]) * (polygon.y[j] - polygon.y[0]) -
               (polygon.x[j] - polygon.x[0]) * (polygon.y[i] - polygon.y[0]);
    }
    return sum > 0 ? sum : 0;
}

/// Intersection over union with 14 fraction bits; 0 where either box has no area.
inline int16_t rotated_overlap(const int16_t a[BOX_VALUES], const int16_t b[BOX_VALUES]) {
    const int32_t width_a = box_side(a[2]), height_a = box_side(a[3]), width_b = box_side(b[2]),
                  height_b = box_side(b[3]);
    if (width_a == 0 || height_a == 0 || width_b == 0 || height_b == 0) return 0;
    const int32_t dx = (int32_t)b[0] - a[0], dy = (int32_t)b[1] - a[1];
    // Half a diagonal is at most half the sum of the sides. It also keeps the products below 2^63.
    const int32_t reach = (width_a + height_a + width_b + height_b) / 2 + 1;
    if (dx > reach || dx < -reach || dy > reach || dy < -reach) return 0;
    Polygon common = box_corners(a, 0, 0);
    const Polygon window = box_corners(b, dx, dy);
    for (int from = 0; from < 4; ++from) common = clip_polygon(common, window, from);
    const int64_t area_a = ((int64_t)width_a * height_a) << 9, area_b = ((int64_t)width_b * height_b) << 9;
    int64_t shared = twice_area(common);
    shared = shared < area_a ? shared : area_a;
    shared = shared < area_b ? shared : area_b;
    const int64_t joined = area_a + area_b - shared;
    return (int16_t)((shared * (1 << 14) + joined / 2) / joined);
}

}  // namespace hls
}  // namespace npuforge
