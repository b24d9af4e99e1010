// Plane geometry of oriented boxes: convex hull, rectangle of the smallest area, overlap of convex polygons. Private to
// src/heads. Double precision.
#pragma once

#include <array>
#include <vector>

#include "npuforge/polygon.hpp"

namespace npuforge::heads {

/// Centre, size and angle (radians, of the width's direction, clockwise in the image).
struct Rectangle {
    Point center;
    double width, height, angle;
};

/// The convex hull, counter-clockwise in mathematical axes, without points on its edges. Fewer than three points where
/// all lie on a line.
std::vector<Point> convex_hull(std::vector<Point> points);

/// The rectangle of the smallest area around the points: one of its sides lies on an edge of their hull. `points` must
/// not be empty.
Rectangle smallest_rectangle(const std::vector<Point>& points);

/// The four corners, clockwise in the image from the unturned rectangle's top left.
std::array<Point, 4> corners_of(const Rectangle& rectangle);

double polygon_area(const std::vector<Point>& polygon);

/// The common part of two convex polygons (Sutherland and Hodgman's clipping).
std::vector<Point> clip_polygon(const std::vector<Point>& subject, const std::vector<Point>& window);

}  // namespace npuforge::heads
