// YoloDecode on the CPU partition: raw YOLOv3 maps to boxes [I, N, 4], scores [I, N], classes [I, N]; with a score
// threshold, of one image, only the rows above it (op.py has the formulas).
#pragma once

#include "hw_kernels/ops/yolo_decode/parallel.hpp"
#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_yolo_decode(Registry& registry) {
    registry.add("npuforge::YoloDecode", [](const NodeInfo& node) {
        const std::vector<float> anchors = node.numbers("anchors", {});
        const std::vector<std::int64_t> strides = node.integers("strides");
        const std::int64_t classes = node.integer("num_classes");
        const std::size_t scales = strides.size();
        node.check(scales > 0 && !anchors.empty() && anchors.size() % (2 * scales) == 0,
                   "anchors must be width, height pairs, the same number for each stride");
        node.check(classes >= 1 && classes < (1 << 20), "num_classes must be between 1 and 2^20");
        const float threshold = node.number("score_threshold", 0.0f);
        node.check(threshold >= 0.0f && threshold <= 1.0f,
                   "score_threshold must be a number from 0 to 1 (0, or no attribute, keeps every row)");
        const auto per_scale = static_cast<std::int64_t>(anchors.size() / (2 * scales));
        node.check(per_scale <= static_cast<std::int64_t>(parallel::kMostAnchors), "at most 64 anchors of a scale");
        Kernel kernel;
        kernel.dynamic = threshold > 0.0f;
        kernel.open_axis = 1;
        kernel.shape = [=](const Args& args) {
            node.check(args.input_count == scales && args.output_count == 3,
                       "one input for each stride and three outputs are needed");
            std::int64_t count = 0;
            const std::int64_t images = args.in(0).shape.rank == 4 ? args.in(0).shape.dim[0] : 1;
            for (std::size_t i = 0; i < scales; ++i) {
                const Shape& x = args.in(i).shape;
                if (args.in(i).type != Type::kFloat32 || x.rank != 4 || images < 1 || x.dim[0] != images ||
                    x.dim[1] != per_scale * (5 + classes))
                    node.fail("input " + std::to_string(i) + " expected as float32 " + std::to_string(images) + "x" +
                              std::to_string(per_scale * (5 + classes)) + "xHxW, found " + x.text());
                count += per_scale * x.dim[2] * x.dim[3];
            }
            node.check(images == 1 || threshold == 0.0f,
                       "with a score_threshold one image is expected: those of a batch would keep different numbers "
                       "of rows");
            for (std::size_t i = 0; i < 3; ++i) args.out(i).type = Type::kFloat32;
            args.out(0).shape = Shape{images, count, 4};
            args.out(1).shape = Shape{images, count};
            args.out(2).shape = Shape{images, count};
        };
        kernel.run = [=](const Args& args) {
            std::int64_t offset = 0;  // boxes of the images and scales before
            const std::int64_t images = args.in(0).shape.dim[0];
            for (std::size_t k = 0; k < scales * static_cast<std::size_t>(images); ++k) {
                const std::size_t i = k % scales;
                const Shape& x = args.in(i).shape;
                const auto image = static_cast<std::int64_t>(k / scales);
                parallel::YoloDecodeBody body{args.in(i).as<float>() + image * x.dim[1] * x.dim[2] * x.dim[3],
                                              args.out(0).as<float>(),
                                              args.out(1).as<float>(),
                                              args.out(2).as<float>(),
                                              offset,
                                              x.dim[2] * x.dim[3],
                                              x.dim[3],
                                              per_scale,
                                              classes,
                                              static_cast<float>(strides[i]),
                                              {}};
                std::copy_n(anchors.data() + 2 * static_cast<std::int64_t>(i) * per_scale, 2 * per_scale, body.anchors);
                parallel::OnHost{}(body.map * per_scale, body);
                offset += body.map * per_scale;
            }
            if (threshold == 0.0f) return;
            float *boxes = args.out(0).as<float>(), *scores = args.out(1).as<float>(),
                  *labels = args.out(2).as<float>();
            std::int64_t kept = 0;
            for (std::int64_t i = 0; i < offset; ++i) {
                if (!(scores[i] > threshold)) continue;
                std::copy_n(boxes + 4 * i, kept < i ? 4 : 0, boxes + 4 * kept);
                scores[kept] = scores[i];
                labels[kept] = labels[i];
                ++kept;
            }
            args.out(0).shape = Shape{1, kept, 4};
            args.out(1).shape = Shape{1, kept};
            args.out(2).shape = Shape{1, kept};
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
