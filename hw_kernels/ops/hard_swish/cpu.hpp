// HardSwish on the CPU partition: y = x * clip(x/6 + 1/2, 0, 1).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_hard_swish(Registry& registry) {
    registry.add("HardSwish", [](const NodeInfo& node) {
        return unary(node, [](float x) { return x * hard_sigmoid(x, 1.0f / 6.0f, 0.5f); });
    });
}

}  // namespace npuforge::cpu
