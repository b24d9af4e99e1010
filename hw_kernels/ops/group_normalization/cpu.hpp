// GroupNormalization on the CPU partition: mean and variance over the channels of a group and the map; scale and bias
// per channel.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_group_normalization(Registry& registry) {
    registry.add("GroupNormalization", [](const NodeInfo& node) {
        const std::int64_t groups = node.integer("num_groups");
        const float epsilon = node.number("epsilon", 1e-5f);
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            node.check(s.rank >= 2 && groups >= 1 && s.dim[1] % groups == 0, "num_groups must divide the channels");
            node.check(args.has(1) && args.has(2) && args.in(1).shape.count() == s.dim[1] &&
                           args.in(2).shape.count() == s.dim[1],
                       "scale and bias need one value per channel");
            const std::int64_t map = s.count(2, s.rank), per_group = s.dim[1] / groups;
            const float *scale = args.in(1).as<float>(), *bias = args.in(2).as<float>();
            normalise_rows(args.in(0).as<float>(), args.out().as<float>(), s.dim[0] * groups, per_group * map, epsilon,
                           [=](std::int64_t row, std::int64_t i, float v) {
                               const std::int64_t c = row % groups * per_group + i / map;
                               return v * scale[c] + bias[c];
                           });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
