// NonZero on the CPU partition: the positions of all elements that are not 0, one column each.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_non_zero(Registry& registry) {
    registry.add("NonZero", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.dynamic = true;
        kernel.open_axis = 1;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0), "an input is needed");
            args.out().type = Type::kInt64;
            args.out().shape = Shape{args.in(0).shape.rank, args.in(0).shape.count()};
        };
        kernel.run = [](const Args& args) {
            const Tensor& x = args.in(0);
            const std::int64_t count = x.shape.count();
            auto* out = args.out().as<std::int64_t>();
            with_type(x.type, [&](auto zero) {
                const auto* data = x.as<decltype(zero)>();
                std::int64_t found = 0;
                for (std::int64_t i = 0; i < count; ++i) found += data[i] != decltype(zero){};
                std::int64_t column = 0;
                for (std::int64_t i = 0; i < count; ++i) {
                    if (data[i] == decltype(zero){}) continue;
                    std::int64_t rest = i;
                    for (int d = x.shape.rank - 1; d >= 0; --d) {
                        out[d * found + column] = rest % x.shape.dim[d];
                        rest /= x.shape.dim[d];
                    }
                    ++column;
                }
                args.out().shape = Shape{x.shape.rank, found};
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
