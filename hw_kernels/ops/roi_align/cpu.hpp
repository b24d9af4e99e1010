// RoiAlign on the CPU partition: average or maximum of bilinear samples in every bin of every region.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_sample.hpp"

namespace npuforge::cpu {

inline void register_roi_align(Registry& registry) {
    registry.add("RoiAlign", [](const NodeInfo& node) {
        const std::string mode = node.string("mode", "avg");
        const bool half = node.string("coordinate_transformation_mode", "half_pixel") == "half_pixel";
        const std::int64_t height = node.integer("output_height", 1), width = node.integer("output_width", 1),
                           sampling = node.integer("sampling_ratio", 0);
        const float scale = node.number("spatial_scale", 1.0f);
        node.check(mode == "avg" || mode == "max", "mode expected avg or max");
        node.check(height > 0 && width > 0 && sampling >= 0 && sampling < 4096, "sizes must be positive");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.has(2) && args.in(0).type == Type::kFloat32 &&
                           args.in(1).type == Type::kFloat32 && args.in(2).type == Type::kInt64,
                       "float32 data and regions, int64 batch indices are needed");
            const Shape &x = args.in(0).shape, &rois = args.in(1).shape;
            node.check(x.rank == 4 && rois.rank == 2 && rois.dim[1] == 4 && args.in(2).shape.count() == rois.dim[0],
                       "a feature map, n x 4 regions and n batch indices are needed");
            node.check(x.count(2, 4) > 0, "the map is empty");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{rois.dim[0], x.dim[1], height, width};
        };
        kernel.run = [=](const Args& args) {
            const Shape& x = args.in(0).shape;
            const std::int64_t channels = x.dim[1], map = x.dim[2] * x.dim[3];
            float* out = args.out().as<float>();
            for (std::int64_t n = 0; n < args.in(1).shape.dim[0]; ++n) {
                const float* box = args.in(1).as<float>() + 4 * n;
                const std::int64_t batch = args.in(2).as<std::int64_t>()[n];
                if (batch < 0 || batch >= x.dim[0])
                    node.fail("batch index " + std::to_string(batch) + " of " + std::to_string(x.dim[0]) + " images");
                const float shift = half ? 0.5f : 0.0f, left = box[0] * scale - shift, top = box[1] * scale - shift;
                float w = box[2] * scale - shift - left, h = box[3] * scale - shift - top;
                if (!half) {
                    w = std::max(w, 1.0f);
                    h = std::max(h, 1.0f);
                }
                const float bin_h = h / static_cast<float>(height), bin_w = w / static_cast<float>(width);
                const auto samples = [&](float bin) {
                    if (sampling > 0) return sampling;
                    node.check(bin <= 4096.0f, "a region has more than 4096 pixels in a bin");
                    return std::max<std::int64_t>(0, saturate<std::int64_t>(std::ceil(static_cast<double>(bin))));
                };
                const std::int64_t rows = samples(bin_h), columns = samples(bin_w);
                for (std::int64_t c = 0; c < channels; ++c) {
                    const float* from = args.in(0).as<float>() + (batch * channels + c) * map;
                    for (std::int64_t bin = 0; bin < height * width; ++bin) {
                        float sum = 0.0f, largest = 0.0f;
                        for (std::int64_t i = 0; i < rows * columns; ++i) {
                            const float at_y = (static_cast<float>(i / columns) + 0.5f) / static_cast<float>(rows),
                                        at_x = (static_cast<float>(i % columns) + 0.5f) / static_cast<float>(columns);
                            const Bilinear sample = sample_clamped(
                                top + (static_cast<float>(bin / width) + at_y) * bin_h,
                                left + (static_cast<float>(bin % width) + at_x) * bin_w, x.dim[2], x.dim[3]);
                            sum += sample.of(from);
                            // ONNX takes the largest weighted pixel, not the largest sample.
                            for (int k = 0; k < 4; ++k) {
                                const float value = sample.part(k, from);
                                largest = i == 0 && k == 0 ? value : std::max(largest, value);
                            }
                        }
                        const auto count = static_cast<float>(std::max<std::int64_t>(1, rows * columns));
                        *out++ = mode == "avg" ? sum / count : largest;
                    }
                }
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
