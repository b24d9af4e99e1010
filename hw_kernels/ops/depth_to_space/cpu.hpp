// DepthToSpace on the CPU partition, modes DCR and CRD.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_depth_to_space(Registry& registry) {
    registry.add("DepthToSpace", [](const NodeInfo& node) {
        const std::int64_t block = node.integer("blocksize");
        const bool crd = node.string("mode", "DCR") == "CRD";
        node.check(block > 0 && block < (1 << 15), "blocksize must be between 1 and 2^15");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            const Shape& in = args.in(0).shape;
            node.check(in.rank == 4 && in.dim[1] % (block * block) == 0,
                       "channels must be a multiple of blocksize squared");
            args.out().type = args.in(0).type;
            args.out().shape = Shape{in.dim[0], in.dim[1] / (block * block), in.dim[2] * block, in.dim[3] * block};
        };
        kernel.run = [=](const Args& args) {
            const Shape &in = args.in(0).shape, &out = args.out().shape;
            const std::int64_t c = out.dim[1], h = in.dim[2], w = in.dim[3];
            // Result axes (n, c, h, by, w, bx) as strides into the input.
            const std::int64_t map = h * w, by = crd ? block * map : block * c * map, bx = crd ? map : c * map,
                               ch = crd ? block * block * map : map;
            const std::int64_t strides[kMaxRank] = {in.dim[1] * map, ch, w, by, 1, bx};
            gather_strided(args.in(0).as<std::uint8_t>(), strides, Shape{in.dim[0], c, h, block, w, block},
                           args.out().as<std::uint8_t>(), type_bytes(args.in(0).type));
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
