// GatherND on the CPU partition (batch_dims 0): the last axis of the indices addresses leading axes of the data.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_gather_nd(Registry& registry) {
    registry.add("GatherND", [](const NodeInfo& node) {
        node.check(node.integer("batch_dims", 0) == 0, "batch_dims other than 0 is not supported");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.in(1).type == Type::kInt64,
                       "data and int64 indices are needed");
            const Shape &in = args.in(0).shape, &indices = args.in(1).shape;
            node.check(indices.rank >= 1, "indices must have at least one dimension");
            const std::int64_t depth = indices.dim[indices.rank - 1];
            node.check(depth >= 1 && depth <= in.rank, "the indices address more axes than the data has");
            Shape out;
            for (int i = 0; i + 1 < indices.rank; ++i) out.push(indices.dim[i]);
            for (int i = static_cast<int>(depth); i < in.rank; ++i) out.push(in.dim[i]);
            args.out().type = args.in(0).type;
            args.out().shape = out;
        };
        kernel.run = [=](const Args& args) {
            const Tensor &x = args.in(0), &indices = args.in(1);
            const int depth = static_cast<int>(indices.shape.dim[indices.shape.rank - 1]);
            const std::size_t inner = static_cast<std::size_t>(x.shape.count(depth, x.shape.rank)) * type_bytes(x.type);
            const std::int64_t count = indices.shape.count() / depth;
            const std::int64_t* index = indices.as<std::int64_t>();
            std::uint8_t* to = args.out().as<std::uint8_t>();
            for (std::int64_t i = 0; i < count; ++i, to += inner) {
                std::int64_t at = 0;
                for (int d = 0; d < depth; ++d, ++index) {
                    const std::int64_t dim = x.shape.dim[d];
                    if (*index < -dim || *index >= dim)
                        node.fail("index " + std::to_string(*index) + " is outside an axis of " + std::to_string(dim));
                    at = at * dim + (*index < 0 ? *index + dim : *index);
                }
                std::memcpy(to, x.as<std::uint8_t>() + static_cast<std::size_t>(at) * inner, inner);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
