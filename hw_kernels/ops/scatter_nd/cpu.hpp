// ScatterND on the CPU partition: a copy of the data with the addressed slices replaced or reduced into, in order.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_scatter_nd(Registry& registry) {
    registry.add("ScatterND", [](const NodeInfo& node) {
        const Reduction reduction = reduction_of(node);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.has(2) && args.in(1).type == Type::kInt64,
                       "data, int64 indices and updates are needed");
            const Shape &in = args.in(0).shape, &indices = args.in(1).shape;
            node.check(args.in(0).type == args.in(2).type, "data and updates must have one type");
            node.check(indices.rank >= 1, "indices must have at least one dimension");
            const std::int64_t depth = indices.dim[indices.rank - 1];
            node.check(depth >= 1 && depth <= in.rank, "the indices address more axes than the data has");
            Shape updates;
            for (int i = 0; i + 1 < indices.rank; ++i) updates.push(indices.dim[i]);
            for (int i = static_cast<int>(depth); i < in.rank; ++i) updates.push(in.dim[i]);
            if (updates != args.in(2).shape)
                node.fail("updates expected as " + updates.text() + ", found " + args.in(2).shape.text());
            args.out().type = args.in(0).type;
            args.out().shape = in;
        };
        kernel.run = [=](const Args& args) {
            const Tensor &x = args.in(0), &indices = args.in(1), &updates = args.in(2);
            Tensor& y = args.out();
            std::memcpy(y.data, x.data, x.bytes());
            const int depth = static_cast<int>(indices.shape.dim[indices.shape.rank - 1]);
            const std::int64_t inner = x.shape.count(depth, x.shape.rank),
                               count = indices.shape.count(0, indices.shape.rank - 1);
            const std::int64_t* index = indices.as<std::int64_t>();
            with_type(x.type, [&](auto zero) {
                using T = decltype(zero);
                const T* from = updates.as<T>();
                for (std::int64_t i = 0; i < count; ++i, from += inner) {
                    std::int64_t at = 0;
                    for (int d = 0; d < depth; ++d, ++index)
                        at = at * x.shape.dim[d] + normal_index(node, *index, x.shape.dim[d]);
                    T* to = y.as<T>() + at * inner;
                    for (std::int64_t j = 0; j < inner; ++j) to[j] = reduce_into(reduction, to[j], from[j]);
                }
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
