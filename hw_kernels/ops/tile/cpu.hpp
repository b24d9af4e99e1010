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
                node.check(repeats.value[i] >= 0 && repeats.value[i] < (std::int64_t{1} << 31),
                           "repeats must be between 0 and 2^31");
                shape.dim[i] *= repeats.value[i];
            }
            args.out().type = args.in(0).type;
            args.out().shape = shape;
        };
        kernel.run = [](const Args& args) {
            const Tensor& x = args.in(0);
            const Shape& y = args.out().shape;
            if (y.count() == 0) return;
            const std::size_t item = type_bytes(x.type);
            const int last = y.rank - 1;
            const std::int64_t width = last < 0 ? 1 : x.shape.dim[last], repeats = last < 0 ? 1 : y.dim[last] / width;
            const std::size_t bytes = static_cast<std::size_t>(width) * item;
            std::uint8_t* out = args.out().as<std::uint8_t>();
            for (std::int64_t row = 0; row < y.count(0, std::max(0, last)); ++row) {
                std::int64_t rest = row, at = 0;
                for (int d = last - 1; d >= 0; --d) {
                    at += rest % y.dim[d] % x.shape.dim[d] * x.shape.count(d + 1, x.shape.rank);
                    rest /= y.dim[d];
                }
                const std::uint8_t* from = x.as<std::uint8_t>() + static_cast<std::size_t>(at) * item;
                for (std::int64_t i = 0; i < repeats; ++i, out += bytes) std::memcpy(out, from, bytes);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
