// Swish on the CPU partition: y = x * sigmoid(alpha * x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_swish(Registry& registry) {
    registry.add("Swish", [](const NodeInfo& node) {
        return unary(node, [alpha = node.number("alpha", 1.0f)](float x) { return x * sigmoid(alpha * x); });
    });
}

}  // namespace npuforge::cpu
