// Tanh on the CPU partition: y = tanh(x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_tanh(Registry& registry) {
    registry.add("Tanh", [](const NodeInfo& node) { return unary(node, [](float x) { return std::tanh(x); }); });
}

}  // namespace npuforge::cpu
