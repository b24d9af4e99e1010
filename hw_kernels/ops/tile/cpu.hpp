// Tile on the CPU partition: constant repeats for every axis.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_tile(Registry& registry) {
    registry.add("Tile", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            const IntegerList repeats = read_integers(node, args, 1);
            Shape shape = args.in(0).shape;
            node.check(repeats.present && repeats.size == shape.rank, "one repeat for every axis is needed");
            for (int i = 0; i < shape.rank; ++i) {
                node.check(repeats.value[i] >= 0, "a negative repeat");
                shape.dim[i] *= repeats.value[i];
            }
            args.out().type = args.in(0).type;
            args.out().shape = shape;
        };
        kernel.run = [](const Args& args) {
            // Axis i of the result is the pair (repeat, position): walk positions with stride, repeats with stride 0.
            const Tensor& x = args.in(0);
            const Tensor& y = args.out();
            const std::size_t item = type_bytes(x.type);
            const std::int64_t total = y.shape.count();
            for (std::int64_t i = 0; i < total; ++i) {
                std::int64_t rest = i, at = 0, step = 1;
                for (int d = y.shape.rank - 1; d >= 0; --d) {
                    at += rest % y.shape.dim[d] % x.shape.dim[d] * step;
                    rest /= y.shape.dim[d];
                    step *= x.shape.dim[d];
                }
                std::memcpy(y.as<std::uint8_t>() + static_cast<std::size_t>(i) * item,
                            x.as<std::uint8_t>() + static_cast<std::size_t>(at) * item, item);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
