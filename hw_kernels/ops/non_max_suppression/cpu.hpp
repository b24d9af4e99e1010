// NonMaxSuppression on the CPU partition: int64 rows (batch, class, box), by class, best score first, ties by index.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// Intersection over union of two boxes: corners in any order, or (x centre, y centre, width, height) if `centre`; 0
/// for empty boxes.
inline float overlap(const float* a, const float* b, bool centre) {
    float low[2][2], high[2][2], area[2];
    const float* box[2] = {a, b};
    for (int i = 0; i < 2; ++i) {
        for (int axis = 0; axis < 2; ++axis) {
            const float p = centre ? box[i][axis] - box[i][axis + 2] / 2.0f : box[i][axis];
            const float q = centre ? box[i][axis] + box[i][axis + 2] / 2.0f : box[i][axis + 2];
            low[i][axis] = std::min(p, q);
            high[i][axis] = std::max(p, q);
        }
        area[i] = (high[i][0] - low[i][0]) * (high[i][1] - low[i][1]);
    }
    const float w = std::min(high[0][0], high[1][0]) - std::max(low[0][0], low[1][0]);
    const float h = std::min(high[0][1], high[1][1]) - std::max(low[0][1], low[1][1]);
    if (w <= 0.0f || h <= 0.0f || area[0] <= 0.0f || area[1] <= 0.0f) return 0.0f;
    return w * h / (area[0] + area[1] - w * h);
}

inline void register_non_max_suppression(Registry& registry) {
    registry.add("NonMaxSuppression", [](const NodeInfo& node) {
        const bool centre = node.integer("center_point_box", 0) != 0;
        const auto scalar = [=](const Args& args, std::size_t i, float fallback) {
            return args.has(i) ? args.in(i).as<float>()[0] : fallback;
        };
        const auto limit = [=](const Args& args) {
            if (!args.has(2)) return std::int64_t{0};
            const IntegerList list = read_integers(node, args, 2);
            node.check(list.size == 1, "max_output_boxes_per_class must be one integer");
            return std::max<std::int64_t>(0, std::min(list.value[0], args.in(0).shape.dim[1]));
        };
        Kernel kernel;
        kernel.dynamic = true;
        kernel.shape = [=](const Args& args) {
            for (const std::size_t i : {0, 1, 3, 4})
                node.check(
                    args.has(i) ? args.in(i).type == Type::kFloat32 && (i < 2 || args.in(i).shape.count() > 0) : i > 1,
                    "boxes, scores and thresholds must be float32");
            const Shape &boxes = args.in(0).shape, &scores = args.in(1).shape;
            if (boxes.rank != 3 || boxes.dim[2] != 4 || scores.rank != 3 || scores.dim[0] != boxes.dim[0] ||
                scores.dim[2] != boxes.dim[1])
                node.fail("boxes " + boxes.text() + " and scores " + scores.text() + " expected as BxNx4 and BxCxN");
            args.out().type = Type::kInt64;
            args.out().shape = Shape{scores.dim[0] * scores.dim[1] * limit(args), 3};
        };
        kernel.scratch = [](const Args& args) {
            return static_cast<std::size_t>(args.in(0).shape.dim[1]) * sizeof(std::int32_t);
        };
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(1).shape;
            const std::int64_t batches = s.dim[0], classes = s.dim[1], count = s.dim[2], most = limit(args);
            const float iou_threshold = scalar(args, 3, 0.0f),
                        score_threshold = scalar(args, 4, -std::numeric_limits<float>::infinity());
            auto* order = reinterpret_cast<std::int32_t*>(args.scratch);
            std::int64_t* out = args.out().as<std::int64_t>();
            std::int64_t rows = 0;
            for (std::int64_t b = 0; b < batches; ++b)
                for (std::int64_t c = 0; c < classes; ++c) {
                    const float* boxes = args.in(0).as<float>() + b * count * 4;
                    const float* scores = args.in(1).as<float>() + (b * classes + c) * count;
                    std::int32_t candidates = 0;
                    for (std::int64_t i = 0; i < count; ++i)
                        if (scores[i] > score_threshold) order[candidates++] = static_cast<std::int32_t>(i);
                    std::sort(order, order + candidates, [scores](std::int32_t p, std::int32_t q) {
                        return scores[p] != scores[q] ? scores[p] > scores[q] : p < q;
                    });
                    const std::int64_t first = rows;
                    for (std::int32_t i = 0; i < candidates && rows - first < most; ++i) {
                        bool keep = true;
                        for (std::int64_t r = first; r < rows && keep; ++r)
                            keep = !(overlap(boxes + 4 * order[i], boxes + 4 * out[3 * r + 2], centre) > iou_threshold);
                        if (!keep) continue;
                        out[3 * rows] = b;
                        out[3 * rows + 1] = c;
                        out[3 * rows + 2] = order[i];
                        ++rows;
                    }
                }
            args.out().shape = Shape{rows, 3};
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
