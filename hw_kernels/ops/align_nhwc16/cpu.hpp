// AlignNhwc16 on the CPU partition: N, H, W, C with channels padded with zeros to a multiple of 16.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_align_nhwc16(Registry& registry) {
    registry.add("npuforge::AlignNhwc16", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32 && args.in(0).shape.rank == 4,
                       "a float32 map N, C, H, W is needed");
            const Shape& s = args.in(0).shape;
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{s.dim[0], s.dim[2], s.dim[3], (s.dim[1] + 15) / 16 * 16};
        };
        kernel.run = [](const Args& args) {
            const Shape& s = args.in(0).shape;
            const std::int64_t map = s.dim[2] * s.dim[3], lanes = args.out().shape.dim[3];
            const float* x = args.in(0).as<float>();
            float* y = args.out().as<float>();
            for (std::int64_t n = 0; n < s.dim[0]; ++n, x += s.dim[1] * map)
                for (std::int64_t p = 0; p < map; ++p, y += lanes)
                    for (std::int64_t c = 0; c < lanes; ++c) y[c] = c < s.dim[1] ? x[c * map + p] : 0.0f;
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
