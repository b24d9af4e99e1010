// LeakyRelu on the CPU partition: y = x, or alpha * x where x < 0.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_leaky_relu(Registry& registry) {
    registry.add("LeakyRelu", [](const NodeInfo& node) {
        return unary(node, [alpha = node.number("alpha", 0.01f)](float x) { return leaky_relu(x, alpha); });
    });
}

}  // namespace npuforge::cpu
