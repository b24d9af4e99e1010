// UnalignNhwc16 on the CPU partition: N, C, H, W from N, H, W, C; lanes from channels on are dropped.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_unalign_nhwc16(Registry& registry) {
    registry.add("npuforge::UnalignNhwc16", [](const NodeInfo& node) {
        const std::int64_t channels = node.integer("channels");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32 && args.in(0).shape.rank == 4 &&
                           channels >= 1 && channels <= args.in(0).shape.dim[3],
                       "a float32 map N, H, W, C with at least `channels` lanes is needed");
            const Shape& s = args.in(0).shape;
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{s.dim[0], channels, s.dim[1], s.dim[2]};
        };
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const std::int64_t map = s.dim[1] * s.dim[2], lanes = s.dim[3];
            const float* x = args.in(0).as<float>();
            float* y = args.out().as<float>();
            for (std::int64_t n = 0; n < s.dim[0]; ++n, x += map * lanes, y += channels * map)
                for (std::int64_t p = 0; p < map; ++p)
                    for (std::int64_t c = 0; c < channels; ++c) y[c * map + p] = x[p * lanes + c];
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
