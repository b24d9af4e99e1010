// Ceil on the CPU partition: y = ceil(x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_ceil(Registry& registry) {
    registry.add("Ceil", [](const NodeInfo& node) { return unary(node, [](float x) { return std::ceil(x); }); });
}

}  // namespace npuforge::cpu
