// Oriented boxes: geometry (oriented.hpp), the detection made of one, and the overlap that NMS uses.
#include "oriented.hpp"

#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

double signed_area(const std::vector<Point>& polygon) {
    double twice = 0.0;
    for (std::size_t i = 0; i < polygon.size(); ++i) {
        const Point& a = polygon[i];
        const Point& b = polygon[(i + 1) % polygon.size()];
        twice += a.x * b.y - a.y * b.x;
    }
    return 0.5 * twice;
}

/// The corners of a detection, turned so that their area is positive.
std::vector<Point> quadrilateral(const Detection& d) {
    std::vector<Point> corners;
    for (std::size_t i = 0; i < 8; i += 2) corners.push_back({d.keypoints[i], d.keypoints[i + 1]});
    if (signed_area(corners) < 0.0) std::reverse(corners.begin(), corners.end());
    return corners;
}

/// Mean and covariance of a rectangle's points, from its corners: with the sides u and v, (u u^T + v v^T) / 12.
struct Spread {
    double x, y, xx, yy, xy;
};

Spread spread_of(const Detection& d) {
    const auto& k = d.keypoints;
    const double ux = static_cast<double>(k[2]) - k[0];
    const double uy = static_cast<double>(k[3]) - k[1];
    const double vx = static_cast<double>(k[4]) - k[2];
    const double vy = static_cast<double>(k[5]) - k[3];
    return {0.5 * (static_cast<double>(k[0]) + k[4]), 0.5 * (static_cast<double>(k[1]) + k[5]),
            (ux * ux + vx * vx) / 12, (uy * uy + vy * vy) / 12, (ux * uy + vx * vy) / 12};
}

}  // namespace

std::vector<Point> convex_hull(std::vector<Point> points) {
    std::sort(points.begin(), points.end(),
              [](const Point& a, const Point& b) { return a.x != b.x ? a.x < b.x : a.y < b.y; });
    points.erase(std::unique(points.begin(), points.end(),
                             [](const Point& a, const Point& b) { return a.x == b.x && a.y == b.y; }),
                 points.end());
    if (points.size() < 3) return points;
    std::vector<Point> hull;
    for (int pass = 0; pass < 2; ++pass) {  // lower chain, then upper chain
        const std::size_t base = hull.size();
        for (const Point& p : points) {
            while (hull.size() >= base + 2 && cross(hull[hull.size() - 2], hull.back(), p) <= 0.0) hull.pop_back();
            hull.push_back(p);
        }
        hull.pop_back();  // the other chain begins with it
        std::reverse(points.begin(), points.end());
    }
    return hull;
}

Rectangle smallest_rectangle(const std::vector<Point>& points) {
    const std::vector<Point> hull = convex_hull(points);
    Rectangle best{hull[0], 0.0, 0.0, 0.0};
    double smallest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < hull.size() && hull.size() > 1; ++i) {
        const Point& a = hull[i];
        const Point& b = hull[(i + 1) % hull.size()];
        const double length = std::hypot(b.x - a.x, b.y - a.y);
        const double c = (b.x - a.x) / length;
        const double s = (b.y - a.y) / length;
        double low_u = std::numeric_limits<double>::infinity();
        double low_v = low_u;
        double high_u = -low_u;
        double high_v = -low_u;
        for (const Point& p : hull) {
            const double u = p.x * c + p.y * s;
            const double v = p.y * c - p.x * s;
            low_u = std::min(low_u, u), high_u = std::max(high_u, u);
            low_v = std::min(low_v, v), high_v = std::max(high_v, v);
        }
        const double area = (high_u - low_u) * (high_v - low_v);
        if (!(area < smallest)) continue;
        smallest = area;
        const double u = 0.5 * (low_u + high_u);
        const double v = 0.5 * (low_v + high_v);
        best = {{u * c - v * s, u * s + v * c}, high_u - low_u, high_v - low_v, std::atan2(s, c)};
    }
    return best;
}

std::array<Point, 4> corners_of(const Rectangle& r) {
    const double c = std::cos(r.angle);
    const double s = std::sin(r.angle);
    std::array<Point, 4> corners{};
    const double signs[4][2] = {{-0.5, -0.5}, {0.5, -0.5}, {0.5, 0.5}, {-0.5, 0.5}};
    for (std::size_t i = 0; i < 4; ++i) {
        const double u = signs[i][0] * r.width;
        const double v = signs[i][1] * r.height;
        corners[i] = {r.center.x + u * c - v * s, r.center.y + u * s + v * c};
    }
    return corners;
}

double polygon_area(const std::vector<Point>& polygon) { return std::abs(signed_area(polygon)); }

std::vector<Point> clip_polygon(const std::vector<Point>& subject, const std::vector<Point>& window) {
    std::vector<Point> polygon = subject;
    for (std::size_t i = 0; i < window.size() && !polygon.empty(); ++i) {
        const int count = static_cast<int>(polygon.size());
        std::vector<Point> kept(2 * polygon.size() + 1);
        const int number =
            clip_by_edge(polygon.data(), count, window[i], window[(i + 1) % window.size()], kept.data(), 2 * count + 1);
        kept.resize(static_cast<std::size_t>(number));
        polygon.swap(kept);
    }
    return polygon;
}

Detection make_oriented(float x, float y, float width, float height, float angle, float score, int label) {
    const auto corners = corners_of({{x, y}, width, height, angle});
    const float far = std::numeric_limits<float>::infinity();
    Detection detection = make_detection({far, far, -far, -far}, score, label);
    detection.keypoint_count = 4;
    for (std::size_t i = 0; i < 4; ++i) {
        const auto px = static_cast<float>(corners[i].x);
        const auto py = static_cast<float>(corners[i].y);
        detection.keypoints[2 * i] = px;
        detection.keypoints[2 * i + 1] = py;
        detection.x1 = std::min(detection.x1, px), detection.x2 = std::max(detection.x2, px);
        detection.y1 = std::min(detection.y1, py), detection.y2 = std::max(detection.y2, py);
    }
    return detection;
}

float oriented_intersection_over_union(const Detection& a, const Detection& b) {
    if (std::min(a.x2, b.x2) <= std::max(a.x1, b.x1) || std::min(a.y2, b.y2) <= std::max(a.y1, b.y1)) return 0.0F;
    const std::vector<Point> first = quadrilateral(a);
    const std::vector<Point> second = quadrilateral(b);
    const double both = polygon_area(clip_polygon(first, second));
    const double either = polygon_area(first) + polygon_area(second) - both;
    return either > 0.0 ? static_cast<float>(both / either) : 0.0F;
}

float gaussian_overlap(const Detection& a, const Detection& b) {
    constexpr double kTiny = 1e-7;  // the authors' constant
    const Spread p = spread_of(a);
    const Spread q = spread_of(b);
    const double dx = p.x - q.x;
    const double dy = p.y - q.y;
    const double xx = p.xx + q.xx;
    const double yy = p.yy + q.yy;
    const double xy = p.xy + q.xy;
    const double both = xx * yy - xy * xy;
    const double apart = 0.25 * (xx * dy * dy + yy * dx * dx - 2.0 * xy * dx * dy) / (both + kTiny);
    const double first = std::max(p.xx * p.yy - p.xy * p.xy, 0.0);
    const double second = std::max(q.xx * q.yy - q.xy * q.xy, 0.0);
    const double unlike = 0.5 * std::log(both / (4.0 * std::sqrt(first * second) + kTiny) + kTiny);
    const double distance = std::clamp(apart + unlike, kTiny, 100.0);
    return static_cast<float>(1.0 - std::sqrt(1.0 - std::exp(-distance) + kTiny));
}

}  // namespace npuforge::heads
