// Exp on the CPU partition: y = exp(x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_exp(Registry& registry) {
    registry.add("Exp", [](const NodeInfo& node) { return unary(node, [](float x) { return std::exp(x); }); });
}

}  // namespace npuforge::cpu
