// Trilu on the CPU partition: the upper or lower triangle of every matrix, 0 elsewhere.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_trilu(Registry& registry) {
    registry.add("Trilu", [](const NodeInfo& node) {
        const bool upper = node.integer("upper", 1) != 0;
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).shape.rank >= 2, "matrices are needed");
            node.check(!args.has(1) || (args.in(1).type == Type::kInt64 && args.in(1).shape.count() == 1),
                       "the diagonal must be one int64");
            args.out().type = args.in(0).type;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = [=](const Args& args) {
            const Tensor& x = args.in(0);
            const std::int64_t given = args.has(1) ? args.in(1).as<std::int64_t>()[0] : 0,
                               rows = x.shape.dim[x.shape.rank - 2], columns = x.shape.dim[x.shape.rank - 1],
                               count = x.shape.count(), k = std::min(std::max(given, -rows), columns);
            with_type(x.type, [&](auto zero) {
                using T = decltype(zero);
                for (std::int64_t i = 0; i < count; ++i) {
                    const std::int64_t row = i / columns % rows, column = i % columns;
                    const bool kept = upper ? column - row >= k : column - row <= k;
                    args.out().as<T>()[i] = kept ? x.as<T>()[i] : T{};
                }
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
