// RotatedRoiAlign on the CPU partition: bilinear samples of rotated regions, averaged per bin (op.py has the rules).
#pragma once

#include "hw_kernels/ops/rotated_roi_align/parallel.hpp"
#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_rotated_roi_align(Registry& registry) {
    registry.add("npuforge::RotatedRoiAlign", [](const NodeInfo& node) {
        const std::int64_t rows = node.integer("output_height", 1), columns = node.integer("output_width", 1),
                           ratio = node.integer("sampling_ratio", 0);
        const double scale = node.number("spatial_scale", 1.0f);
        node.check(rows >= 1 && columns >= 1 && ratio >= 0 && ratio <= parallel::kMostSamples,
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
                const parallel::RotatedRegion region(roi, scale, rows, columns, ratio);
                node.check(region.ny > 0 && region.nx > 0, "a region has more than 4096 pixels in a bin");
                for (std::int64_t c = 0; c < channels; ++c) {
                    const float* map =
                        args.in(0).as<float>() + (static_cast<std::int64_t>(roi[0]) * channels + c) * height * width;
                    for (std::int64_t i = 0; i < rows; ++i)
                        for (std::int64_t j = 0; j < columns; ++j)
                            *y++ = region.bin(map, height, width, rows, columns, i, j);
                }
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
