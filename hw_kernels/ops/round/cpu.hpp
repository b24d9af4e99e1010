// Round on the CPU partition: y = x rounded to the nearest integer, halves to even.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_round(Registry& registry) {
    registry.add("Round", [](const NodeInfo& node) { return unary(node, [](float x) { return std::nearbyint(x); }); });
}

}  // namespace npuforge::cpu
