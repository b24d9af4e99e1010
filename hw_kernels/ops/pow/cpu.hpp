// Pow on the CPU partition: y = a ** b with broadcasting; the exponent may have another number type.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_pow(Registry& registry) {
    registry.add("Pow", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [node](const Args& args) {
            node.check(args.has(0) && args.has(1), "two inputs are needed");
            for (std::size_t i = 0; i < 2; ++i) with_number(node, args.in(i).type, [](auto) {});
            args.out().type = args.in(0).type;
            args.out().shape = broadcast(node, args.in(0).shape, args.in(1).shape);
        };
        kernel.run = [](const Args& args) {
            const Tensor &a = args.in(0), &b = args.in(1);
            Tensor& y = args.out();
            with_type(a.type, [&](auto base) {
                using T = decltype(base);
                with_type(b.type, [&](auto exponent) {
                    using E = decltype(exponent);
                    broadcast_apply(a.as<T>(), a.shape, b.as<E>(), b.shape, y.as<T>(), y.shape, [](T p, E q) {
                        if (q == E{2}) return wrapped(p, p, [](auto u, auto v) { return u * v; });
                        if constexpr (std::is_same_v<T, float>)
                            return std::pow(p, static_cast<float>(q));
                        else
                            return saturate<T>(std::pow(static_cast<double>(p), static_cast<double>(q)));
                    });
                });
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
