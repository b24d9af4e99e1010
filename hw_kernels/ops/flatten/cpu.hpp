// Flatten on the CPU partition: a view as a matrix.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_flatten(Registry& registry) {
    registry.add("Flatten", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", 1);
        return view([=](const Args& args) {
            const Shape& in = args.in(0).shape;
            const std::int64_t axis = attribute < 0 ? attribute + in.rank : attribute;
            node.check(axis >= 0 && axis <= in.rank, "axis is outside the tensor");
            return Shape{in.count(0, static_cast<int>(axis)), in.count(static_cast<int>(axis), in.rank)};
        });
    });
}

}  // namespace npuforge::cpu
