// Silu on the CPU partition: y = x * sigmoid(x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_silu(Registry& registry) {
    registry.add("npuforge::Silu",
                 [](const NodeInfo& node) { return unary(node, [](float x) { return x * sigmoid(x); }); });
}

}  // namespace npuforge::cpu
