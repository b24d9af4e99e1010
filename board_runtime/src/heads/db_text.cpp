// Text by differentiable binarisation (DB, PP-OCR): a probability map [1, 1, h, w]; pixels above map_threshold form
// regions (8-connected); each region's rectangle of the smallest area scores with the mean probability inside it, and
// grows on every side by area * unclip_ratio / perimeter. Oriented boxes; regions cannot overlap, so there is no NMS.
#include <algorithm>
#include <set>

#include "decoders.hpp"
#include "oriented.hpp"

namespace npuforge::heads {
namespace {

class DbText : public Decoder {
  public:
    DbText(const Options& options, InputSize size) : options_(options), size_(size) {
        if (!(options_.unclip_ratio >= 0.0F) || !(options_.smallest_side > 0.0F))
            refuse("db_text", "smallest_side must be positive, unclip_ratio not negative");
    }
    bool oriented() const override { return true; }
    bool selected() const override { return true; }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& map = *find_tensors(tensors, options_, "db_text", "map", 0, 1)[0];
        expect_shape(map, "db_text", {1, 1, -1, -1});
        const int height = static_cast<int>(map.shape[2]);
        const int width = static_cast<int>(map.shape[3]);
        std::vector<char> open(map.size());
        for (std::size_t i = 0; i < open.size(); ++i) open[i] = map.data[i] > options_.map_threshold ? 1 : 0;
        const float scale_x = static_cast<float>(size_.width) / static_cast<float>(width);
        const float scale_y = static_cast<float>(size_.height) / static_cast<float>(height);
        for (int start = 0; start < width * height; ++start) {
            if (open[static_cast<std::size_t>(start)] == 0) continue;
            Rectangle box = smallest_rectangle(region_ends(open, start, width, height));
            if (std::min(box.width, box.height) < options_.smallest_side) continue;
            const float score = mean_inside(map.data, box, width, height);
            if (!(score > threshold)) continue;
            const double grow = box.width * box.height * options_.unclip_ratio / (2.0 * (box.width + box.height));
            box.width += 2.0 * grow;
            box.height += 2.0 * grow;
            if (std::min(box.width, box.height) < options_.smallest_side + 2.0) continue;
            out.push_back(detection(box, score, scale_x, scale_y));
        }
    }

  private:
    /// The first and last pixel in every row of the region that holds `start`; the region is removed from `open`.
    static std::vector<Point> region_ends(std::vector<char>& open, int start, int width, int height) {
        std::vector<int> stack = {start};
        std::map<int, std::array<int, 2>> rows;
        open[static_cast<std::size_t>(start)] = 0;
        while (!stack.empty()) {
            const int at = stack.back();
            stack.pop_back();
            const int x = at % width;
            const int y = at / width;
            auto& ends = rows.try_emplace(y, std::array<int, 2>{x, x}).first->second;
            ends = {std::min(ends[0], x), std::max(ends[1], x)};
            for (int v = std::max(y - 1, 0); v <= std::min(y + 1, height - 1); ++v)
                for (int u = std::max(x - 1, 0); u <= std::min(x + 1, width - 1); ++u) {
                    char& next = open[static_cast<std::size_t>(v * width + u)];
                    if (next == 0) continue;
                    next = 0;
                    stack.push_back(v * width + u);
                }
        }
        std::vector<Point> points;
        for (const auto& [y, ends] : rows)
            for (int x : ends) points.push_back({static_cast<double>(x), static_cast<double>(y)});
        return points;
    }

    /// Mean over the pixels that the authors' polygon fill takes: corners cut to whole pixels, inside and border lines.
    static float mean_inside(const float* map, const Rectangle& box, int width, int height) {
        std::array<std::array<int, 2>, 4> corners{};
        const auto exact = corners_of(box);
        for (std::size_t i = 0; i < 4; ++i)  // the slack keeps a corner that is whole from falling to the pixel before
            corners[i] = {static_cast<int>(std::floor(exact[i].x + 1e-4)),
                          static_cast<int>(std::floor(exact[i].y + 1e-4))};
        std::set<std::array<int, 2>> pixels;  // of the border
        for (std::size_t i = 0; i < 4; ++i) add_line(corners[i], corners[(i + 1) % 4], pixels);
        double sum = 0.0;
        int count = 0;
        const auto take = [&](int x, int y) {
            if (x < 0 || y < 0 || x >= width || y >= height) return;
            sum += map[y * width + x];
            ++count;
        };
        for (auto it = pixels.begin(); it != pixels.end();) {  // a convex outline: each row is filled between its ends
            const int y = (*it)[0];
            const int left = (*it)[1];
            int right = left;
            for (; it != pixels.end() && (*it)[0] == y; ++it) right = (*it)[1];
            for (int x = left; x <= right; ++x) take(x, y);
        }
        return count == 0 ? 0.0F : static_cast<float>(sum / count);
    }

    /// Bresenham's line, as {y, x}.
    static void add_line(std::array<int, 2> a, std::array<int, 2> b, std::set<std::array<int, 2>>& pixels) {
        const int dx = std::abs(b[0] - a[0]);
        const int dy = std::abs(b[1] - a[1]);
        const int step_x = a[0] < b[0] ? 1 : -1;
        const int step_y = a[1] < b[1] ? 1 : -1;
        int error = dx - dy;
        for (;;) {
            pixels.insert({a[1], a[0]});
            if (a == b) return;
            const int twice = 2 * error;
            if (twice > -dy) error -= dy, a[0] += step_x;
            if (twice < dx) error += dx, a[1] += step_y;
        }
    }

    /// Corners in input pixels, clockwise from the one that is most to the top left.
    static Detection detection(const Rectangle& box, float score, float scale_x, float scale_y) {
        const auto corners = corners_of(box);
        std::size_t first = 0;
        for (std::size_t i = 1; i < 4; ++i)
            if (corners[i].x + corners[i].y < corners[first].x + corners[first].y) first = i;
        const float far = std::numeric_limits<float>::infinity();
        Detection found = make_detection({far, far, -far, -far}, score, 0);
        found.keypoint_count = 4;
        for (std::size_t i = 0; i < 4; ++i) {
            const float x = static_cast<float>(corners[(first + i) % 4].x) * scale_x;
            const float y = static_cast<float>(corners[(first + i) % 4].y) * scale_y;
            found.keypoints[2 * i] = x;
            found.keypoints[2 * i + 1] = y;
            found.x1 = std::min(found.x1, x), found.x2 = std::max(found.x2, x);
            found.y1 = std::min(found.y1, y), found.y2 = std::max(found.y2, y);
        }
        return found;
    }

    Options options_;
    InputSize size_;
};

}  // namespace

std::unique_ptr<Decoder> make_db_text(const Options& options, InputSize size) {
    return std::make_unique<DbText>(options, size);
}

}  // namespace npuforge::heads
