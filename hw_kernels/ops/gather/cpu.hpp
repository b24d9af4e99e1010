// Gather on the CPU partition: slices of one axis by int64 or int32 indices; negative indices count from the end.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_gather(Registry& registry) {
    registry.add("Gather", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", 0);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1), "data and indices are needed");
            const Shape &in = args.in(0).shape, &indices = args.in(1).shape;
            const Type type = args.in(1).type;
            node.check(type == Type::kInt64 || type == Type::kInt32, "indices must be int64 or int32");
            const int axis = normal_axis(node, attribute, in.rank);
            Shape out;
            for (int i = 0; i < axis; ++i) out.push(in.dim[i]);
            for (int i = 0; i < indices.rank; ++i) out.push(indices.dim[i]);
            for (int i = axis + 1; i < in.rank; ++i) out.push(in.dim[i]);
            args.out().type = args.in(0).type;
            args.out().shape = out;
        };
        kernel.run = [=](const Args& args) {
            const Tensor &x = args.in(0), &indices = args.in(1);
            const int axis = normal_axis(node, attribute, x.shape.rank);
            const std::size_t inner =
                static_cast<std::size_t>(x.shape.count(axis + 1, x.shape.rank)) * type_bytes(x.type);
            const std::int64_t outer = x.shape.count(0, axis), dim = x.shape.dim[axis], count = indices.shape.count();
            std::uint8_t* to = args.out().as<std::uint8_t>();
            for (std::int64_t o = 0; o < outer; ++o)
                for (std::int64_t i = 0; i < count; ++i) {
                    std::int64_t index =
                        indices.type == Type::kInt64 ? indices.as<std::int64_t>()[i] : indices.as<std::int32_t>()[i];
                    if (index < -dim || index >= dim)
                        node.fail("index " + std::to_string(index) + " is outside an axis of " + std::to_string(dim));
                    if (index < 0) index += dim;
                    std::memcpy(to, x.as<std::uint8_t>() + static_cast<std::size_t>(o * dim + index) * inner, inner);
                    to += inner;
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
