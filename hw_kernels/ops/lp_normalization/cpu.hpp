// LpNormalization on the CPU partition: division by the L1 or L2 norm along one axis.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_lp_normalization(Registry& registry) {
    registry.add("LpNormalization", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", -1), power = node.integer("p", 2);
        node.check(power == 1 || power == 2, "p expected 1 or 2");
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.run = [=](const Args& args) {
            const Tensor& x = args.in(0);
            const int axis = normal_axis(node, attribute, x.shape.rank);
            const std::int64_t outer = x.shape.count(0, axis), size = x.shape.dim[axis],
                               inner = x.shape.count(axis + 1, x.shape.rank);
            for (std::int64_t o = 0; o < outer; ++o)
                for (std::int64_t i = 0; i < inner; ++i) {
                    const float* from = x.as<float>() + o * size * inner + i;
                    float* to = args.out().as<float>() + o * size * inner + i;
                    float norm = 0.0f;
                    for (std::int64_t k = 0; k < size; ++k)
                        norm += power == 1 ? std::fabs(from[k * inner]) : from[k * inner] * from[k * inner];
                    if (power == 2) norm = std::sqrt(norm);
                    for (std::int64_t k = 0; k < size; ++k)
                        to[k * inner] = norm == 0.0f ? 0.0f : from[k * inner] / norm;
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
