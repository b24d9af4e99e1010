// Affine on the CPU partition: y = scale[c] * x + bias[c]; the fused activation follows.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_affine(Registry& registry) {
    registry.add("Affine", [](const NodeInfo& node) {
        const std::vector<float> scale = node.numbers("scale", {}), bias = node.numbers("bias", {});
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const auto channels = static_cast<std::int64_t>(scale.size());
            node.check(s.rank >= 2 && s.dim[1] == channels && bias.size() == scale.size(),
                       "scale and bias need one value per channel");
            const std::int64_t map = s.count(2, s.rank), maps = s.dim[0] * channels;
            const float* x = args.in(0).as<float>();
            float* y = args.out().as<float>();
            for (std::int64_t i = 0; i < maps; ++i, x += map, y += map) {
                const auto c = static_cast<std::size_t>(i % channels);
                for (std::int64_t j = 0; j < map; ++j) y[j] = x[j] * scale[c] + bias[c];
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
