// RotatedNms on the CPU partition: int64 rows (class, box), best score first, ties by index.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/rotated.hpp"

namespace npuforge::cpu {

inline void register_rotated_nms(Registry& registry) {
    registry.add("npuforge::RotatedNms", [](const NodeInfo& node) {
        const double threshold = node.number("iou_threshold", 0.5f);
        const float lowest = node.number("score_threshold", 0.0f);
        const std::int64_t limit = node.integer("max_output_boxes_per_class", 0);
        node.check(limit >= 0, "max_output_boxes_per_class must not be negative");
        const auto most = [=](std::int64_t boxes) { return limit == 0 ? boxes : std::min(limit, boxes); };
        Kernel kernel;
        kernel.dynamic = true;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "float32 boxes and scores are needed");
            const Shape &boxes = args.in(0).shape, &scores = args.in(1).shape;
            if (boxes.rank != 2 || boxes.dim[1] != 5 || scores.rank != 2 || scores.dim[1] != boxes.dim[0])
                node.fail("boxes " + boxes.text() + " and scores " + scores.text() + " expected as Nx5 and CxN");
            args.out().type = Type::kInt64;
            args.out().shape = Shape{scores.dim[0] * most(boxes.dim[0]), 2};
        };
        kernel.scratch = [](const Args& args) {
            return static_cast<std::size_t>(args.in(0).shape.dim[0]) * sizeof(std::int32_t);
        };
        kernel.run = [=](const Args& args) {
            const std::int64_t classes = args.in(1).shape.dim[0], count = args.in(1).shape.dim[1];
            const float* boxes = args.in(0).as<float>();
            auto* order = reinterpret_cast<std::int32_t*>(args.scratch);
            std::int64_t* out = args.out().as<std::int64_t>();
            std::int64_t rows = 0;
            for (std::int64_t c = 0; c < classes; ++c) {
                const float* scores = args.in(1).as<float>() + c * count;
                std::int32_t candidates = 0;
                for (std::int64_t i = 0; i < count; ++i)
                    if (scores[i] > lowest) order[candidates++] = static_cast<std::int32_t>(i);
                std::sort(order, order + candidates, [scores](std::int32_t p, std::int32_t q) {
                    return scores[p] != scores[q] ? scores[p] > scores[q] : p < q;
                });
                const std::int64_t first = rows;
                for (std::int32_t i = 0; i < candidates && rows - first < most(count); ++i) {
                    bool keep = true;
                    for (std::int64_t r = first; r < rows && keep; ++r)
                        keep = rotated_overlap(boxes + 5 * order[i], boxes + 5 * out[2 * r + 1]) <= threshold;
                    if (!keep) continue;
                    out[2 * rows] = c;
                    out[2 * rows + 1] = order[i];
                    ++rows;
                }
            }
            args.out().shape = Shape{rows, 2};
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
