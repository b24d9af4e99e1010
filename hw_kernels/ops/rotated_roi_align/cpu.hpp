// RotatedRoiAlign on the CPU partition: bilinear samples of rotated regions, averaged per bin (op.py has the rules).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// What RotatedRoiAlign reads of one map: bilinear interpolation with pixel centres at whole coordinates, 0 more than a
/// pixel outside, NaN at a coordinate that is none.
inline float sample_map(const float* map, std::int64_t height, std::int64_t width, double x, double y) {
    if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<float>::quiet_NaN();
    if (x < -1.0 || x > static_cast<double>(width) || y < -1.0 || y > static_cast<double>(height)) return 0.0f;
    x = std::min(std::max(x, 0.0), static_cast<double>(width - 1));
    y = std::min(std::max(y, 0.0), static_cast<double>(height - 1));
    const auto left = static_cast<std::int64_t>(x), top = static_cast<std::int64_t>(y);
    const std::int64_t right = std::min(left + 1, width - 1), bottom = std::min(top + 1, height - 1);
    const double fx = x - static_cast<double>(left), fy = y - static_cast<double>(top);
    const auto mix = [](double a, double b, double f) { return f == 0.0 ? a : a * (1.0 - f) + b * f; };
    const double upper = mix(map[top * width + left], map[top * width + right], fx);
    const double lower = mix(map[bottom * width + left], map[bottom * width + right], fx);
    return static_cast<float>(mix(upper, lower, fy));
}

inline void register_rotated_roi_align(Registry& registry) {
    registry.add("npuforge::RotatedRoiAlign", [](const NodeInfo& node) {
        const std::int64_t rows = node.integer("output_height", 1), columns = node.integer("output_width", 1),
                           ratio = node.integer("sampling_ratio", 0);
        const double scale = node.number("spatial_scale", 1.0f);
        constexpr int kMostSamples = 4096;  // of a bin along one axis
        node.check(rows >= 1 && columns >= 1 && ratio >= 0 && ratio <= kMostSamples,
                   "output sizes must be 1 or more, sampling_ratio between 0 and 4096");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "a float32 map and float32 regions are needed");
            const Shape &x = args.in(0).shape, &rois = args.in(1).shape;
            if (x.rank != 4 || x.dim[2] < 1 || x.dim[3] < 1 || rois.rank != 2 || rois.dim[1] != 6)
                node.fail("map " + x.text() + " and regions " + rois.text() + " expected as NxCxHxW and Kx6");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{rois.dim[0], x.dim[1], rows, columns};
        };
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const std::int64_t count = args.in(1).shape.dim[0], channels = s.dim[1], height = s.dim[2],
                               width = s.dim[3];
            float* y = args.out().as<float>();
            for (std::int64_t k = 0; k < count; ++k) {
                const float* roi = args.in(1).as<float>() + 6 * k;
                node.check(roi[0] >= 0.0f && roi[0] < static_cast<float>(s.dim[0]) && roi[0] == std::floor(roi[0]),
                           "a region names an image that is not in the batch");
                const double cx = roi[1] * scale - 0.5, cy = roi[2] * scale - 0.5, w = roi[3] * scale,
                             h = roi[4] * scale;
                const double cosine = std::cos(static_cast<double>(roi[5])),
                             sine = std::sin(static_cast<double>(roi[5]));
                const auto samples = [&](double size, std::int64_t bins) {
                    const double wanted = std::ceil(size / static_cast<double>(bins));
                    node.check(ratio > 0 || wanted <= kMostSamples, "a region has more than 4096 pixels in a bin");
                    return ratio > 0 ? ratio : std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
                };
                const std::int64_t ny = samples(h, rows), nx = samples(w, columns);
                for (std::int64_t c = 0; c < channels; ++c) {
                    const float* map =
                        args.in(0).as<float>() + (static_cast<std::int64_t>(roi[0]) * channels + c) * height * width;
                    for (std::int64_t i = 0; i < rows; ++i)
                        for (std::int64_t j = 0; j < columns; ++j) {
                            double sum = 0.0;
                            for (std::int64_t a = 0; a < ny; ++a)
                                for (std::int64_t b = 0; b < nx; ++b) {
                                    const double ly = ((i * ny + a + 0.5) / static_cast<double>(rows * ny) - 0.5) * h;
                                    const double lx =
                                        ((j * nx + b + 0.5) / static_cast<double>(columns * nx) - 0.5) * w;
                                    sum += sample_map(map, height, width, cx + lx * cosine - ly * sine,
                                                      cy + lx * sine + ly * cosine);
                                }
                            *y++ = static_cast<float>(sum / static_cast<double>(ny * nx));
                        }
                }
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
