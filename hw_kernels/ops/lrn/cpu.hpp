// LRN on the CPU partition: local response normalisation across channels.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_lrn(Registry& registry) {
    registry.add("LRN", [](const NodeInfo& node) {
        const std::int64_t size = node.integer("size");
        const float alpha = node.number("alpha", 1e-4f), beta = node.number("beta", 0.75f),
                    bias = node.number("bias", 1.0f);
        node.check(size > 0, "size must be positive");
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.shape = [node, shape = kernel.shape](const Args& args) {
            shape(args);
            node.check(args.in(0).shape.rank >= 2, "data with channels are needed");
        };
        kernel.run = [=](const Args& args) {
            const Shape& shape = args.in(0).shape;
            const std::int64_t channels = shape.dim[1], map = shape.count(2, shape.rank);
            for (std::int64_t n = 0; n < shape.dim[0]; ++n)
                for (std::int64_t c = 0; c < channels; ++c) {
                    const float* x = args.in(0).as<float>() + n * channels * map;
                    float* y = args.out().as<float>() + (n * channels + c) * map;
                    const std::int64_t first = std::max<std::int64_t>(0, c - (size - 1) / 2),
                                       last = std::min(channels - 1, c + size / 2);
                    std::fill_n(y, map, 0.0f);
                    for (std::int64_t k = first; k <= last; ++k)
                        for (std::int64_t i = 0; i < map; ++i) y[i] += x[k * map + i] * x[k * map + i];
                    for (std::int64_t i = 0; i < map; ++i)
                        y[i] = x[c * map + i] / std::pow(bias + alpha / static_cast<float>(size) * y[i], beta);
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
