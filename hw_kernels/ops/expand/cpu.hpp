// Expand on the CPU partition: broadcasting to a constant shape.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_expand(Registry& registry) {
    registry.add("Expand", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            const IntegerList target = read_integers(node, args, 1);
            node.check(target.present, "the new shape is missing");
            Shape shape;
            for (int i = 0; i < target.size; ++i) shape.push(target.value[i]);
            args.out().type = args.in(0).type;
            args.out().shape = broadcast(node, args.in(0).shape, shape);
        };
        kernel.run = [](const Args& args) {
            std::int64_t strides[kMaxRank] = {};
            broadcast_strides(args.in(0).shape, args.out().shape, strides);
            gather_strided(args.in(0).as<std::uint8_t>(), strides, args.out().shape, args.out().as<std::uint8_t>(),
                           type_bytes(args.in(0).type));
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
