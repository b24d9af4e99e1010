// ChannelGather on the CPU partition: output channel c is input channel indices[c]; -1 is 0.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_channel_gather(Registry& registry) {
    registry.add("ChannelGather", [](const NodeInfo& node) {
        const std::vector<std::int64_t> indices = node.integers("indices");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            const Shape& in = args.in(0).shape;
            node.check(in.rank >= 2, "a channel dimension is needed");
            for (const std::int64_t index : indices)
                if (index < -1 || index >= in.dim[1])
                    node.fail("index " + std::to_string(index) + " is outside " + std::to_string(in.dim[1]) +
                              " channels");
            args.out().type = args.in(0).type;
            args.out().shape = in;
            args.out().shape.dim[1] = static_cast<std::int64_t>(indices.size());
        };
        kernel.run = [indices](const Args& args) {
            const Tensor& x = args.in(0);
            const std::size_t map = static_cast<std::size_t>(x.shape.count(2, x.shape.rank)) * type_bytes(x.type);
            std::uint8_t* to = args.out().as<std::uint8_t>();
            for (std::int64_t n = 0; n < x.shape.dim[0]; ++n)
                for (const std::int64_t index : indices) {
                    if (index < 0)
                        std::memset(to, 0, map);
                    else
                        std::memcpy(
                            to, x.as<std::uint8_t>() + static_cast<std::size_t>(n * x.shape.dim[1] + index) * map, map);
                    to += map;
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
