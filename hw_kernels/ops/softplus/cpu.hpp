// Softplus on the CPU partition: y = ln(1 + exp(x)).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_softplus(Registry& registry) {
    registry.add("Softplus", [](const NodeInfo& node) { return unary(node, [](float x) { return softplus(x); }); });
}

}  // namespace npuforge::cpu
