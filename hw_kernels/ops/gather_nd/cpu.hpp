// GatherND on the CPU partition: behind `batch_dims` shared axes the last axis of the indices addresses axes of the
// data.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_gather_nd(Registry& registry) {
    registry.add("GatherND", [](const NodeInfo& node) {
        const std::int64_t batch_dims = node.integer("batch_dims", 0);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.in(1).type == Type::kInt64,
                       "data and int64 indices are needed");
            const Shape &in = args.in(0).shape, &indices = args.in(1).shape;
            node.check(indices.rank >= 1, "indices must have at least one dimension");
            const std::int64_t depth = indices.dim[indices.rank - 1];
            node.check(batch_dims >= 0 && batch_dims < indices.rank && batch_dims < in.rank,
                       "batch_dims is outside the tensors");
            for (int i = 0; i < batch_dims; ++i) node.check(in.dim[i] == indices.dim[i], "the batch axes differ");
            node.check(depth >= 1 && depth <= in.rank - batch_dims, "the indices address more axes than the data has");
            Shape out;
            for (int i = 0; i + 1 < indices.rank; ++i) out.push(indices.dim[i]);
            for (int i = static_cast<int>(batch_dims + depth); i < in.rank; ++i) out.push(in.dim[i]);
            args.out().type = args.in(0).type;
            args.out().shape = out;
        };
        kernel.run = [=](const Args& args) {
            const Tensor &x = args.in(0), &indices = args.in(1);
            const int first = static_cast<int>(batch_dims),
                      end = first + static_cast<int>(indices.shape.dim[indices.shape.rank - 1]);
            const std::size_t inner = static_cast<std::size_t>(x.shape.count(end, x.shape.rank)) * type_bytes(x.type);
            const std::int64_t batches = x.shape.count(0, first),
                               count = indices.shape.count(first, indices.shape.rank - 1);
            const std::int64_t* index = indices.as<std::int64_t>();
            std::uint8_t* to = args.out().as<std::uint8_t>();
            for (std::int64_t batch = 0; batch < batches; ++batch)
                for (std::int64_t i = 0; i < count; ++i, to += inner) {
                    std::int64_t at = batch;
                    for (int d = first; d < end; ++d, ++index)
                        at = at * x.shape.dim[d] + normal_index(node, *index, x.shape.dim[d]);
                    std::memcpy(to, x.as<std::uint8_t>() + static_cast<std::size_t>(at) * inner, inner);
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
