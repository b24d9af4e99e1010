// Reciprocal on the CPU partition: y = 1 / x.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_reciprocal(Registry& registry) {
    registry.add("Reciprocal", [](const NodeInfo& node) { return unary(node, [](float x) { return 1.0f / x; }); });
}

}  // namespace npuforge::cpu
