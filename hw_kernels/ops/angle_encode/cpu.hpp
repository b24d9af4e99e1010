// AngleEncode on the CPU partition: (sin 2a, cos 2a) along one axis.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_angle_encode(Registry& registry) {
    registry.add("npuforge::AngleEncode", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", 1);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "input 0 must be float32");
            args.out().type = Type::kFloat32;
            args.out().shape = args.in(0).shape;
            args.out().shape.dim[normal_axis(node, attribute, args.in(0).shape.rank)] *= 2;
        };
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const int axis = normal_axis(node, attribute, s.rank);
            const std::int64_t outer = s.count(0, axis), block = s.count(axis, s.rank);
            const float* x = args.in(0).as<float>();
            float* y = args.out().as<float>();
            for (std::int64_t o = 0; o < outer; ++o, x += block, y += 2 * block)
                for (std::int64_t i = 0; i < block; ++i) {
                    y[i] = std::sin(2.0f * x[i]);
                    y[block + i] = std::cos(2.0f * x[i]);
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
