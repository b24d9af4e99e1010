// OneHot on the CPU partition: a constant depth, indices of any number type, values [off, on].
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_one_hot(Registry& registry) {
    registry.add("OneHot", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", -1);
        const auto depth_of = [node](const Args& args) {
            node.check(args.has(1) && args.in(1).constant && args.in(1).shape.count() == 1,
                       "the depth must be one constant number");
            std::int64_t depth = 0;
            with_type(args.in(1).type, [&](auto zero) {
                depth = saturate<std::int64_t>(static_cast<double>(args.in(1).as<decltype(zero)>()[0]));
            });
            node.check(depth > 0 && depth < (std::int64_t{1} << 31), "the depth must be positive and below 2^31");
            return depth;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(2) && args.in(2).shape.count() == 2,
                       "indices and two values are needed");
            const std::int64_t depth = depth_of(args);
            const Shape& indices = args.in(0).shape;
            const int axis = normal_axis(node, attribute, indices.rank + 1);
            Shape out;
            for (int d = 0; d <= indices.rank; ++d) out.push(d == axis ? depth : indices.dim[d < axis ? d : d - 1]);
            args.out().type = args.in(2).type;
            args.out().shape = out;
        };
        kernel.run = [=](const Args& args) {
            const Shape &indices = args.in(0).shape, &y = args.out().shape;
            const int axis = normal_axis(node, attribute, y.rank);
            const std::int64_t depth = y.dim[axis], inner = y.count(axis + 1, y.rank), count = indices.count();
            with_type(args.out().type, [&](auto zero) {
                using T = decltype(zero);
                const T off = args.in(2).as<T>()[0], on = args.in(2).as<T>()[1];
                std::fill_n(args.out().as<T>(), y.count(), off);
                with_type(args.in(0).type, [&](auto kind) {
                    for (std::int64_t i = 0; i < count; ++i) {
                        std::int64_t index =
                            saturate<std::int64_t>(static_cast<double>(args.in(0).as<decltype(kind)>()[i]));
                        if (index < -depth || index >= depth) continue;
                        if (index < 0) index += depth;
                        args.out().as<T>()[(i / inner * depth + index) * inner + i % inner] = on;
                    }
                });
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
