// GridSample on the CPU partition: two or three spatial axes, nearest, linear, cubic; zeros, border or reflection
// outside.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// Neighbours of one coordinate along an axis; -1: a zero stands there.
struct GridTaps {
    std::int64_t at[4] = {-1, -1, -1, -1};
    float weight[4] = {};
};

class GridRule {
  public:
    explicit GridRule(const NodeInfo& node) {
        const std::string mode = node.string("mode", "linear"), padding = node.string("padding_mode", "zeros");
        taps_ = mode == "nearest" ? 1 : (mode == "linear" || mode == "bilinear" ? 2 : 4);
        node.check(taps_ != 4 || mode == "cubic" || mode == "bicubic", "mode expected nearest, linear or cubic");
        node.check(padding == "zeros" || padding == "border" || padding == "reflection",
                   "padding_mode expected zeros, border or reflection");
        zeros_ = padding == "zeros";
        reflect_ = padding == "reflection";
        align_ = node.integer("align_corners", 0) != 0;
    }

    int taps() const { return taps_; }

    /// `coordinate` in [-1, 1] over an axis of `size`.
    GridTaps along(float coordinate, std::int64_t size) const {
        const auto length = static_cast<float>(size);
        float x = align_ ? (coordinate + 1.0f) / 2.0f * (length - 1.0f) : ((coordinate + 1.0f) * length - 1.0f) / 2.0f;
        constexpr float kFar = 1e9f;  // far outside, and an integer all the same
        x = x != x ? -1.0f : std::min(std::max(x, -kFar), kFar);
        GridTaps out;
        if (taps_ == 1) {
            out.at[0] = pixel(std::nearbyint(padded(x, size)), size);
            out.weight[0] = 1.0f;
        } else if (taps_ == 2) {
            x = padded(x, size);
            const float low = std::floor(x);
            out.at[0] = pixel(low, size);
            out.at[1] = pixel(low + 1.0f, size);
            out.weight[1] = x - low;
            out.weight[0] = 1.0f - out.weight[1];
        } else {
            const float low = std::floor(x), part = x - low;
            for (int i = 0; i < 4; ++i) {
                out.at[i] = pixel(low + static_cast<float>(i - 1), size);
                out.weight[i] = cubic(std::fabs(part - static_cast<float>(i - 1)));
            }
        }
        return out;
    }

  private:
    float padded(float x, std::int64_t size) const {
        const float last = static_cast<float>(size) - 1.0f;
        if (zeros_ || (x >= 0.0f && x <= last)) return x;
        return reflect_ ? reflected(x, size) : std::min(std::max(x, 0.0f), last);
    }

    float reflected(float x, std::int64_t size) const {
        const float low = align_ ? 0.0f : -0.5f, high = static_cast<float>(size) - (align_ ? 1.0f : 0.5f),
                    span = high - low;
        if (span <= 0.0f) return 0.0f;
        if (x >= low && x <= high) return x;
        const float away = x < low ? low - x : x - high;
        const float turns = std::floor(away / span), rest = away - turns * span;
        const bool forth = std::fmod(turns, 2.0f) == 0.0f;
        return (x < low) == forth ? low + rest : high - rest;
    }

    std::int64_t pixel(float x, std::int64_t size) const {
        if (zeros_ && (x < 0.0f || x > static_cast<float>(size) - 1.0f)) return -1;
        const float inside = zeros_ ? x : (reflect_ ? reflected(x, size) : x);
        return std::min(std::max<std::int64_t>(static_cast<std::int64_t>(inside), 0), size - 1);
    }

    static float cubic(float x) {
        constexpr float a = -0.75f;
        if (x <= 1.0f) return ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
        return x < 2.0f ? ((a * x - 5.0f * a) * x + 8.0f * a) * x - 4.0f * a : 0.0f;
    }

    int taps_ = 2;
    bool zeros_ = true, reflect_ = false, align_ = false;
};

inline void register_grid_sample(Registry& registry) {
    registry.add("GridSample", [](const NodeInfo& node) {
        const GridRule rule(node);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "float32 data and grid are needed");
            const Shape &x = args.in(0).shape, &grid = args.in(1).shape;
            const int spatial = x.rank - 2;
            node.check((spatial == 2 || spatial == 3) && grid.rank == x.rank && grid.dim[0] == x.dim[0] &&
                           grid.dim[grid.rank - 1] == spatial,
                       "data N, C, spatial and a grid N, spatial, coordinates are needed");
            node.check(x.count(2, x.rank) > 0, "the data are empty");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{x.dim[0], x.dim[1]};
            for (int d = 0; d < spatial; ++d) args.out().shape.push(grid.dim[1 + d]);
        };
        kernel.run = [=](const Args& args) {
            const Shape &x = args.in(0).shape, &y = args.out().shape;
            const int spatial = x.rank - 2;
            const std::int64_t points = y.count(2, y.rank), map = x.count(2, x.rank);
            for (std::int64_t n = 0; n < x.dim[0]; ++n)
                for (std::int64_t p = 0; p < points; ++p) {
                    const float* grid = args.in(1).as<float>() + (n * points + p) * spatial;
                    GridTaps axis[3];  // slowest axis first; a missing one has a single tap
                    axis[0].at[0] = 0;
                    axis[0].weight[0] = 1.0f;
                    for (int d = 0; d < spatial; ++d)
                        axis[3 - spatial + d] = rule.along(grid[spatial - 1 - d], x.dim[2 + d]);
                    const int planes = spatial == 3 ? rule.taps() : 1;
                    const std::int64_t height = x.dim[x.rank - 2], width = x.dim[x.rank - 1];
                    for (std::int64_t c = 0; c < x.dim[1]; ++c) {
                        const float* from = args.in(0).as<float>() + (n * x.dim[1] + c) * map;
                        float sum = 0.0f;
                        for (int i = 0; i < planes; ++i)
                            for (int j = 0; j < rule.taps(); ++j)
                                for (int k = 0; k < rule.taps(); ++k) {
                                    if (axis[0].at[i] < 0 || axis[1].at[j] < 0 || axis[2].at[k] < 0) continue;
                                    sum += axis[0].weight[i] * axis[1].weight[j] * axis[2].weight[k] *
                                           from[(axis[0].at[i] * height + axis[1].at[j]) * width + axis[2].at[k]];
                                }
                        args.out().as<float>()[(n * x.dim[1] + c) * points + p] = sum;
                    }
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
