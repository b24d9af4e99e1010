// ScatterElements on the CPU partition: a copy of the data with single elements replaced or reduced into, in order.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_scatter_elements(Registry& registry) {
    registry.add("ScatterElements", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", 0);
        const Reduction reduction = reduction_of(node);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.has(2), "data, indices and updates are needed");
            const Shape &x = args.in(0).shape, &indices = args.in(1).shape;
            node.check(args.in(1).type == Type::kInt64 || args.in(1).type == Type::kInt32,
                       "indices must be int64 or int32");
            node.check(args.in(0).type == args.in(2).type && indices == args.in(2).shape,
                       "updates must have the type of the data and the shape of the indices");
            const int axis = normal_axis(node, attribute, x.rank);
            node.check(indices.rank == x.rank, "data and indices of one rank are needed");
            for (int d = 0; d < x.rank; ++d)
                node.check(d == axis || indices.dim[d] <= x.dim[d], "the indices reach beyond the data");
            args.out().type = args.in(0).type;
            args.out().shape = x;
        };
        kernel.run = [=](const Args& args) {
            const Tensor &x = args.in(0), &indices = args.in(1);
            const int axis = normal_axis(node, attribute, x.shape.rank);
            std::memcpy(args.out().data, x.data, x.bytes());
            const std::int64_t count = indices.shape.count();
            with_type(x.type, [&](auto zero) {
                using T = decltype(zero);
                for (std::int64_t i = 0; i < count; ++i) {
                    std::int64_t rest = i, at = 0;
                    for (int d = x.shape.rank - 1; d >= 0; --d) {
                        const std::int64_t position = d == axis
                                                          ? normal_index(node, integer_at(indices, i), x.shape.dim[d])
                                                          : rest % indices.shape.dim[d];
                        rest /= indices.shape.dim[d];
                        at += position * x.shape.count(d + 1, x.shape.rank);
                    }
                    T& to = args.out().as<T>()[at];
                    to = reduce_into(reduction, to, args.in(2).as<T>()[i]);
                }
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
