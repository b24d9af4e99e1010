// Compress on the CPU partition: the slices along an axis (or of the flat input) whose condition holds.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_compress(Registry& registry) {
    registry.add("Compress", [](const NodeInfo& node) {
        const bool flat = !node.has("axis");
        const std::int64_t attribute = node.integer("axis", 0);
        Kernel kernel;
        kernel.dynamic = true;
        kernel.open_axis = static_cast<int>(attribute);
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.in(1).type == Type::kBool && args.in(1).shape.rank == 1,
                       "data and a vector of bool are needed");
            args.out().type = args.in(0).type;
            args.out().shape = flat ? Shape{args.in(0).shape.count()} : args.in(0).shape;
            if (!flat) normal_axis(node, attribute, args.in(0).shape.rank);
        };
        kernel.run = [=](const Args& args) {
            const Tensor& x = args.in(0);
            const Shape shape = flat ? Shape{x.shape.count()} : x.shape;
            const int axis = flat ? 0 : normal_axis(node, attribute, shape.rank);
            const std::int64_t size = std::min(shape.dim[axis], args.in(1).shape.count());
            const std::size_t inner = static_cast<std::size_t>(shape.count(axis + 1, shape.rank)) * type_bytes(x.type);
            auto* out = args.out().as<std::uint8_t>();
            std::int64_t found = 0;
            for (std::int64_t i = 0; i < size; ++i) found += args.in(1).as<std::uint8_t>()[i] != 0;
            for (std::int64_t o = 0; o < shape.count(0, axis); ++o)
                for (std::int64_t i = 0; i < size; ++i) {
                    if (!args.in(1).as<std::uint8_t>()[i]) continue;
                    std::memcpy(out, x.as<std::uint8_t>() + static_cast<std::size_t>(o * shape.dim[axis] + i) * inner,
                                inner);
                    out += inner;
                }
            args.out().shape = shape;
            args.out().shape.dim[axis] = found;
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
