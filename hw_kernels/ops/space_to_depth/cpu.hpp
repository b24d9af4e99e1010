// SpaceToDepth on the CPU partition: output channels in the order (by, bx, c).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_space_to_depth(Registry& registry) {
    registry.add("SpaceToDepth", [](const NodeInfo& node) {
        const std::int64_t block = node.integer("blocksize");
        node.check(block > 0 && block < (1 << 15), "blocksize must be between 1 and 2^15");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            const Shape& in = args.in(0).shape;
            node.check(in.rank == 4 && in.dim[2] % block == 0 && in.dim[3] % block == 0,
                       "height and width must be multiples of blocksize");
            args.out().type = args.in(0).type;
            args.out().shape = Shape{in.dim[0], in.dim[1] * block * block, in.dim[2] / block, in.dim[3] / block};
        };
        kernel.run = [=](const Args& args) {
            const Shape& in = args.in(0).shape;
            const std::int64_t c = in.dim[1], h = in.dim[2], w = in.dim[3];
            const std::int64_t strides[kMaxRank] = {c * h * w, w,         1,
                                                    h * w,     block * w, block};  // axes (n, by, bx, c, y, x)
            gather_strided(args.in(0).as<std::uint8_t>(), strides,
                           Shape{in.dim[0], block, block, c, h / block, w / block}, args.out().as<std::uint8_t>(),
                           type_bytes(args.in(0).type));
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
