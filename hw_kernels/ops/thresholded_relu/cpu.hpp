// ThresholdedRelu on the CPU partition: y = x where x > alpha, else 0.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_thresholded_relu(Registry& registry) {
    registry.add("ThresholdedRelu", [](const NodeInfo& node) {
        return unary(node, [alpha = node.number("alpha", 1.0f)](float x) { return x > alpha ? x : 0.0f; });
    });
}

}  // namespace npuforge::cpu
