// Sqrt on the CPU partition: y = sqrt(x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_sqrt(Registry& registry) {
    registry.add("Sqrt", [](const NodeInfo& node) { return unary(node, [](float x) { return std::sqrt(x); }); });
}

}  // namespace npuforge::cpu
