// Hardmax on the CPU partition: 1 at the first largest value along the axis, 0 elsewhere.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_hardmax(Registry& registry) {
    registry.add("Hardmax", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", -1);
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.run = [=](const Args& args) {
            const Shape& shape = args.in(0).shape;
            const int axis = normal_axis(node, attribute, shape.rank);
            const std::int64_t outer = shape.count(0, axis), size = shape.dim[axis],
                               inner = shape.count(axis + 1, shape.rank);
            std::fill_n(args.out().as<float>(), shape.count(), 0.0f);
            for (std::int64_t o = 0; o < outer && size > 0; ++o)
                for (std::int64_t i = 0; i < inner; ++i) {
                    const float* from = args.in(0).as<float>() + o * size * inner + i;
                    std::int64_t best = 0;
                    for (std::int64_t k = 1; k < size; ++k)
                        if (from[k * inner] > from[best * inner]) best = k;
                    args.out().as<float>()[(o * size + best) * inner + i] = 1.0f;
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
