// HardSigmoid on the CPU partition: y = clip(alpha * x + beta, 0, 1).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_hard_sigmoid(Registry& registry) {
    registry.add("HardSigmoid", [](const NodeInfo& node) {
        const float alpha = node.number("alpha", 0.2f), beta = node.number("beta", 0.5f);
        return unary(node, [alpha, beta](float x) { return hard_sigmoid(x, alpha, beta); });
    });
}

}  // namespace npuforge::cpu
