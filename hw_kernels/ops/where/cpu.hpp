// Where on the CPU partition: y = condition ? a : b with broadcasting.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_where(Registry& registry) {
    registry.add("Where", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [node](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.has(2) && args.in(0).type == Type::kBool,
                       "a bool condition and two values are needed");
            node.check(args.in(1).type == args.in(2).type, "the two values must have one type");
            args.out().type = args.in(1).type;
            args.out().shape = broadcast(node, broadcast(node, args.in(0).shape, args.in(1).shape), args.in(2).shape);
        };
        kernel.run = [](const Args& args) {
            const Tensor &condition = args.in(0), &a = args.in(1), &b = args.in(2);
            Tensor& y = args.out();
            with_type(a.type, [&](auto zero) {
                using T = decltype(zero);
                T* out = y.as<T>();
                broadcast_apply(b.as<T>(), b.shape, b.as<T>(), b.shape, out, y.shape, [](T p, T) { return p; });
                // Then overwrite where the condition holds, walking condition and a together.
                std::int64_t sc[kMaxRank] = {}, sa[kMaxRank] = {};
                broadcast_strides(condition.shape, y.shape, sc);
                broadcast_strides(a.shape, y.shape, sa);
                const std::int64_t total = y.shape.count();
                for (std::int64_t i = 0; i < total; ++i) {
                    std::int64_t rest = i, at_c = 0, at_a = 0;
                    for (int d = y.shape.rank - 1; d >= 0; --d) {
                        at_c += rest % y.shape.dim[d] * sc[d];
                        at_a += rest % y.shape.dim[d] * sa[d];
                        rest /= y.shape.dim[d];
                    }
                    if (condition.as<std::uint8_t>()[at_c]) out[i] = a.as<T>()[at_a];
                }
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
