// Shape and Size on the CPU partition: int64 dimensions, `start` and `end` as in opset 15.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_shape(Registry& registry) {
    registry.add("Shape", [](const NodeInfo& node) {
        const std::int64_t start_a = node.integer("start", 0), end_a = node.integer("end", kMaxRank);
        const auto range = [=](int rank) {
            const auto limit = [rank](std::int64_t v) {
                return std::min<std::int64_t>(std::max<std::int64_t>(v < 0 ? v + rank : v, 0), rank);
            };
            return std::pair<std::int64_t, std::int64_t>(limit(start_a), limit(end_a));
        };
        Kernel kernel;
        kernel.shape_only = true;
        kernel.shape = [range](const Args& args) {
            const auto [start, end] = range(args.in(0).shape.rank);
            args.out().type = Type::kInt64;
            args.out().shape = Shape{std::max<std::int64_t>(0, end - start)};
        };
        kernel.run = [range](const Args& args) {
            const auto [start, end] = range(args.in(0).shape.rank);
            for (std::int64_t i = start; i < end; ++i)
                args.out().as<std::int64_t>()[i - start] = args.in(0).shape.dim[i];
        };
        return kernel;
    });
    registry.add("Size", [](const NodeInfo&) {
        Kernel kernel;
        kernel.shape_only = true;
        kernel.shape = [](const Args& args) {
            args.out().type = Type::kInt64;
            args.out().shape = Shape{};
        };
        kernel.run = [](const Args& args) { args.out().as<std::int64_t>()[0] = args.in(0).shape.count(); };
        return kernel;
    });
}

}  // namespace npuforge::cpu
