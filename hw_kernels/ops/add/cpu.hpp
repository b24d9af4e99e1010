// Add on the CPU partition: y = a + b with broadcasting.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_add(Registry& registry) {
    registry.add("Add", [](const NodeInfo& node) {
        return binary(node, [](auto p, auto q) { return wrapped(p, q, [](auto a, auto b) { return a + b; }); });
    });
}

}  // namespace npuforge::cpu
