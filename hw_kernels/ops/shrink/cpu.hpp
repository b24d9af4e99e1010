// Shrink on the CPU partition: values near 0 become 0, the others move towards it.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_shrink(Registry& registry) {
    registry.add("Shrink", [](const NodeInfo& node) {
        return unary(node, [bias = node.number("bias", 0.0f), limit = node.number("lambd", 0.5f)](float x) {
            return x < -limit ? x + bias : (x > limit ? x - bias : 0.0f);
        });
    });
}

}  // namespace npuforge::cpu
