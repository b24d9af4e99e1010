// RotatedRoiAlign over the bins of its result, for host and device (op.py has the meaning).
#pragma once

#include <limits>
#include <stdexcept>

#include "npuforge/parallel.hpp"

namespace npuforge::parallel {

/// Bilinear interpolation with pixel centres at whole coordinates, 0 more than a pixel outside, NaN at a coordinate
/// that is none.
NPUFORGE_BOTH inline double mix(double a, double b, double f) { return f == 0.0 ? a : a * (1.0 - f) + b * f; }
NPUFORGE_BOTH inline double inside(double x, double last) {
    x = x < 0.0 ? 0.0 : x;
    return last < x ? last : x;
}
NPUFORGE_BOTH inline float sample_map(const float* map, std::int64_t height, std::int64_t width, double x, double y) {
    if (x != x || y != y) return std::numeric_limits<float>::quiet_NaN();
    if (x < -1.0 || x > static_cast<double>(width) || y < -1.0 || y > static_cast<double>(height)) return 0.0f;
    x = inside(x, static_cast<double>(width - 1));
    y = inside(y, static_cast<double>(height - 1));
    const auto left = static_cast<std::int64_t>(x), top = static_cast<std::int64_t>(y);
    const std::int64_t right = left + 1 < width ? left + 1 : width - 1,
                       bottom = top + 1 < height ? top + 1 : height - 1;
    const double fx = x - static_cast<double>(left), fy = y - static_cast<double>(top);
    const double upper = mix(map[top * width + left], map[top * width + right], fx);
    const double lower = mix(map[bottom * width + left], map[bottom * width + right], fx);
    return static_cast<float>(mix(upper, lower, fy));
}

/// Most samples of a bin along one axis.
constexpr std::int64_t kMostSamples = 4096;

/// One region's geometry. `ny`, `nx`: samples of a bin, 0 where they would be too many.
struct RotatedRegion {
    double cx, cy, w, h, cosine, sine;
    std::int64_t ny, nx;

    NPUFORGE_BOTH RotatedRegion(const float* roi, double scale, std::int64_t rows, std::int64_t columns,
                                std::int64_t ratio)
        : cx(roi[1] * scale - 0.5),
          cy(roi[2] * scale - 0.5),
          w(roi[3] * scale),
          h(roi[4] * scale),
          cosine(std::cos(static_cast<double>(roi[5]))),
          sine(std::sin(static_cast<double>(roi[5]))),
          ny(samples(h, rows, ratio)),
          nx(samples(w, columns, ratio)) {}

    NPUFORGE_BOTH static std::int64_t samples(double size, std::int64_t bins, std::int64_t ratio) {
        const double wanted = std::ceil(size / static_cast<double>(bins));
        if (ratio > 0) return ratio;
        if (!(wanted <= static_cast<double>(kMostSamples))) return 0;
        return wanted > 1.0 ? static_cast<std::int64_t>(wanted) : 1;
    }
    /// The mean of bin (i, j).
    NPUFORGE_BOTH float bin(const float* map, std::int64_t height, std::int64_t width, std::int64_t rows,
                            std::int64_t columns, std::int64_t i, std::int64_t j) const {
        double sum = 0.0;
        for (std::int64_t a = 0; a < ny; ++a)
            for (std::int64_t b = 0; b < nx; ++b) {
                const double ly = ((static_cast<double>(i * ny + a) + 0.5) / static_cast<double>(rows * ny) - 0.5) * h;
                const double lx =
                    ((static_cast<double>(j * nx + b) + 0.5) / static_cast<double>(columns * nx) - 0.5) * w;
                sum += sample_map(map, height, width, cx + lx * cosine - ly * sine, cy + lx * sine + ly * cosine);
            }
        return static_cast<float>(sum / static_cast<double>(ny * nx));
    }
};

/// Index: element of regions, channels, rows, columns. NaN where the region names no image of the batch or has too many
/// pixels in a bin: a device has no other way to say it.
struct RotatedRoiAlignBody {
    const float *x, *regions;
    float* y;
    std::int64_t images, channels, height, width, rows, columns, ratio;
    double scale;
    NPUFORGE_BOTH void operator()(std::int64_t index) const {
        const std::int64_t j = index % columns, i = index / columns % rows, c = index / columns / rows % channels;
        const float* roi = regions + 6 * (index / columns / rows / channels);
        const RotatedRegion region(roi, scale, rows, columns, ratio);
        if (!(roi[0] >= 0.0f && roi[0] < static_cast<float>(images) && roi[0] == std::floor(roi[0])) ||
            region.ny == 0 || region.nx == 0) {
            y[index] = std::numeric_limits<float>::quiet_NaN();
            return;
        }
        const float* map = x + (static_cast<std::int64_t>(roi[0]) * channels + c) * height * width;
        y[index] = region.bin(map, height, width, rows, columns, i, j);
    }
};

struct RotatedRoiAlign : Operator {
    static constexpr const char* name = "RotatedRoiAlign";
    static std::vector<Field> fields() {
        return {{"output_height", false, {1}},
                {"output_width", false, {1}},
                {"sampling_ratio", false, {0}},
                {"spatial_scale", true, {1.0}}};
    }
    explicit RotatedRoiAlign(const Attributes& given)
        : rows_(given.integer("output_height")),
          columns_(given.integer("output_width")),
          ratio_(given.integer("sampling_ratio")),
          scale_(given.number("spatial_scale")) {
        if (rows_ < 1 || columns_ < 1 || ratio_ < 0 || ratio_ > kMostSamples)
            throw std::invalid_argument(
                "RotatedRoiAlign: output sizes must be 1 or more, sampling_ratio between 0 and 4096");
    }
    static std::vector<Element> outputs() { return {Element::kFloat32}; }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        const Dim& regions = in.at(1).at(0);
        out = {{regions, in.at(0).at(1), regions * 0 + rows_, regions * 0 + columns_}};
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        const Dims<std::int64_t>& x = call.input_dims[0];
        each(count_of(call.output_dims[0]), RotatedRoiAlignBody{call.in(0), call.in(1), call.out(), x[0], x[1], x[2],
                                                                x[3], rows_, columns_, ratio_, scale_});
    }

  private:
    std::int64_t rows_, columns_, ratio_;
    double scale_;
};

}  // namespace npuforge::parallel
