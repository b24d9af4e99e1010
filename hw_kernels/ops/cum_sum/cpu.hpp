// CumSum and CumProd along a constant axis on the CPU partition.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// y[i] = f over x[0 … i] along the axis (x[0 … i - 1] if exclusive), from the end if reverse.
template <typename F>
Kernel cumulative(const NodeInfo& node, int start, F step) {
    const bool exclusive = node.integer("exclusive", 0) != 0, reverse = node.integer("reverse", 0) != 0;
    const auto axis_of = [node](const Args& args) {
        const IntegerList axis = read_integers(node, args, 1);
        node.check(axis.present && axis.size == 1, "the axis must be one constant integer");
        return normal_axis(node, axis.value[0], args.in(0).shape.rank);
    };
    Kernel kernel = unary_number(node, [](auto x) { return x; });
    kernel.shape = [axis_of, shape = kernel.shape](const Args& args) {
        shape(args);
        axis_of(args);
    };
    kernel.run = [=](const Args& args) {
        const Shape& shape = args.in(0).shape;
        const int axis = axis_of(args);
        const std::int64_t outer = shape.count(0, axis), size = shape.dim[axis],
                           inner = shape.count(axis + 1, shape.rank);
        with_type(args.in(0).type, [&](auto zero) {
            using T = decltype(zero);
            for (std::int64_t o = 0; o < outer; ++o)
                for (std::int64_t i = 0; i < inner; ++i) {
                    T total = static_cast<T>(start);
                    for (std::int64_t k = 0; k < size; ++k) {
                        const std::int64_t at = (o * size + (reverse ? size - 1 - k : k)) * inner + i;
                        const T next = wrapped(total, args.in(0).as<T>()[at], step);
                        args.out().as<T>()[at] = exclusive ? total : next;
                        total = next;
                    }
                }
        });
    };
    return kernel;
}

inline void register_cum_sum(Registry& registry) {
    registry.add("CumSum",
                 [](const NodeInfo& node) { return cumulative(node, 0, [](auto p, auto q) { return p + q; }); });
    registry.add("CumProd",
                 [](const NodeInfo& node) { return cumulative(node, 1, [](auto p, auto q) { return p * q; }); });
}

}  // namespace npuforge::cpu
