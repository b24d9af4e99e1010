// LayerNormalization on the CPU partition: mean and variance over the axes from `axis` on; scale and bias broadcast to
// the input.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_layer_normalization(Registry& registry) {
    registry.add("LayerNormalization", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", -1);
        const float epsilon = node.number("epsilon", 1e-5f);
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const int axis = normal_axis(node, attribute, s.rank);
            const std::int64_t size = s.count(axis, s.rank), rows = size ? s.count() / size : 0;
            node.check(
                args.has(1) && args.in(1).shape.count() == size && (!args.has(2) || args.in(2).shape.count() == size),
                "scale and bias need one value for each element of the normalised axes");
            const float* scale = args.in(1).as<float>();
            const float* bias = args.has(2) ? args.in(2).as<float>() : nullptr;
            normalise_rows(args.in(0).as<float>(), args.out().as<float>(), rows, size, epsilon,
                           [=](std::int64_t, std::int64_t i, float v) { return v * scale[i] + (bias ? bias[i] : 0); });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
