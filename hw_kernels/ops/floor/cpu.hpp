// Floor on the CPU partition: y = floor(x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_floor(Registry& registry) {
    registry.add("Floor", [](const NodeInfo& node) { return unary(node, [](float x) { return std::floor(x); }); });
}

}  // namespace npuforge::cpu
