// Relu on the CPU partition: y = max(x, 0).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_relu(Registry& registry) {
    registry.add("Relu", [](const NodeInfo& node) { return unary(node, [](float x) { return relu(x); }); });
}

}  // namespace npuforge::cpu
