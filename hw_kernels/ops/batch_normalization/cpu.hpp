// BatchNormalization (inference) on the CPU partition: y = scale * (x - mean) / sqrt(variance + epsilon) + bias per
// channel.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_batch_normalization(Registry& registry) {
    registry.add("BatchNormalization", [](const NodeInfo& node) {
        const float epsilon = node.number("epsilon", 1e-5f);
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const std::int64_t channels = s.rank > 1 ? s.dim[1] : 1, map = s.rank > 1 ? s.count(2, s.rank) : s.count();
            for (std::size_t i = 1; i < 5; ++i)
                node.check(args.has(i) && args.in(i).shape.count() == channels,
                           "scale, bias, mean and variance need one value per channel");
            const float* x = args.in(0).as<float>();
            float* y = args.out().as<float>();
            const std::int64_t maps = map ? s.count() / map : 0;
            for (std::int64_t i = 0; i < maps; ++i, x += map, y += map) {
                const std::int64_t c = i % channels;
                const float factor = args.in(1).as<float>()[c] / std::sqrt(args.in(4).as<float>()[c] + epsilon);
                const float addend = args.in(2).as<float>()[c] - args.in(3).as<float>()[c] * factor;
                for (std::int64_t j = 0; j < map; ++j) y[j] = x[j] * factor + addend;
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
