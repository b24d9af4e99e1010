// Sign on the CPU partition: y = -1, 0 or 1.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_sign(Registry& registry) {
    registry.add("Sign", [](const NodeInfo& node) {
        return unary(node, [](float x) { return x != x ? x : static_cast<float>((x > 0.0f) - (x < 0.0f)); });
    });
}

}  // namespace npuforge::cpu
