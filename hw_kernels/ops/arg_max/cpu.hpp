// ArgMax and ArgMin on the CPU partition: int64 index of the first (or last) extreme along one axis.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_arg_max(Registry& registry) {
    const auto make = [](const NodeInfo& node, bool largest) {
        const std::int64_t attribute = node.integer("axis", 0);
        const bool keep = node.integer("keepdims", 1) != 0, last = node.integer("select_last_index", 0) != 0;
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0), "an input is needed");
            with_number(node, args.in(0).type, [](auto) {});
            const Shape& in = args.in(0).shape;
            const int axis = normal_axis(node, attribute, in.rank);
            node.check(in.dim[axis] > 0, "the axis is empty");
            Shape out;
            for (int i = 0; i < in.rank; ++i)
                if (i != axis)
                    out.push(in.dim[i]);
                else if (keep)
                    out.push(1);
            args.out().type = Type::kInt64;
            args.out().shape = out;
        };
        kernel.run = [=](const Args& args) {
            const Tensor& x = args.in(0);
            const int axis = normal_axis(node, attribute, x.shape.rank);
            const std::int64_t outer = x.shape.count(0, axis), size = x.shape.dim[axis],
                               inner = x.shape.count(axis + 1, x.shape.rank);
            with_type(x.type, [&](auto zero) {
                using T = decltype(zero);
                for (std::int64_t o = 0; o < outer; ++o)
                    for (std::int64_t i = 0; i < inner; ++i) {
                        const T* from = x.as<T>() + o * size * inner + i;
                        std::int64_t best = 0;
                        for (std::int64_t k = 1; k < size; ++k) {
                            const T value = from[k * inner], top = from[best * inner];
                            if ((largest ? value > top : value < top) || (last && value == top)) best = k;
                        }
                        args.out().as<std::int64_t>()[o * inner + i] = best;
                    }
            });
        };
        return kernel;
    };
    registry.add("ArgMax", [make](const NodeInfo& node) { return make(node, true); });
    registry.add("ArgMin", [make](const NodeInfo& node) { return make(node, false); });
}

}  // namespace npuforge::cpu
