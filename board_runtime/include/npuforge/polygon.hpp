// Points of the plane and the clipping of a convex polygon by one edge (Sutherland and Hodgman), in double.
#pragma once

#include "npuforge/parallel.hpp"

namespace npuforge {

struct Point {
    double x, y;
};

/// Twice the signed area of the triangle (o, a, b): positive where b lies left of the line from o to a.
NPUFORGE_BOTH inline double cross(const Point& o, const Point& a, const Point& b) {
    return (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);
}

/// Writes to `kept` what of the polygon lies left of the line from `start` to `end`, and returns the number of its
/// corners: at most one more than before where the polygon is convex; never more than `capacity`, at least 2.
NPUFORGE_BOTH inline int clip_by_edge(const Point* polygon, int count, const Point& start, const Point& end,
                                      Point* kept, int capacity) {
    int number = 0;
    for (int i = 0; i < count && number < capacity - 1; ++i) {
        const Point &p = polygon[i], &q = polygon[(i + 1) % count];
        const double side_p = cross(start, end, p), side_q = cross(start, end, q);
        if (side_p >= 0.0) kept[number++] = p;
        if ((side_p > 0.0 && side_q < 0.0) || (side_p < 0.0 && side_q > 0.0)) {
            const double t = side_p / (side_p - side_q);
            kept[number++] = {p.x + (q.x - p.x) * t, p.y + (q.y - p.y) * t};
        }
    }
    return number;
}

}  // namespace npuforge
