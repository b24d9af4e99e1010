// GatherElements on the CPU partition: y[i][j] = x[index[i][j]][j] along `axis`.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_gather_elements(Registry& registry) {
    registry.add("GatherElements", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", 0);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.in(0).shape.rank == args.in(1).shape.rank,
                       "data and indices of one rank are needed");
            const Type type = args.in(1).type;
            node.check(type == Type::kInt64 || type == Type::kInt32, "indices must be int64 or int32");
            const Shape &x = args.in(0).shape, &indices = args.in(1).shape;
            const int axis = normal_axis(node, attribute, x.rank);
            for (int d = 0; d < x.rank; ++d)
                node.check(d == axis || indices.dim[d] <= x.dim[d], "the indices reach beyond the data");
            args.out().type = args.in(0).type;
            args.out().shape = args.in(1).shape;
        };
        kernel.run = [=](const Args& args) {
            const Tensor &x = args.in(0), &indices = args.in(1);
            const int axis = normal_axis(node, attribute, x.shape.rank);
            std::int64_t strides[kMaxRank] = {};
            broadcast_strides(x.shape, x.shape, strides);
            const std::int64_t step = x.shape.count(axis + 1, x.shape.rank), dim = x.shape.dim[axis],
                               count = indices.shape.count();
            const std::size_t item = type_bytes(x.type);
            for (std::int64_t i = 0; i < count; ++i) {
                std::int64_t rest = i, at = 0;
                for (int d = x.shape.rank - 1; d >= 0; --d) {
                    if (d != axis) at += rest % indices.shape.dim[d] * strides[d];
                    rest /= indices.shape.dim[d];
                }
                std::int64_t index =
                    indices.type == Type::kInt64 ? indices.as<std::int64_t>()[i] : indices.as<std::int32_t>()[i];
                if (index < -dim || index >= dim)
                    node.fail("index " + std::to_string(index) + " is outside an axis of " + std::to_string(dim));
                if (index < 0) index += dim;
                std::memcpy(args.out().as<std::uint8_t>() + static_cast<std::size_t>(i) * item,
                            x.as<std::uint8_t>() + static_cast<std::size_t>(at + index * step) * item, item);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
