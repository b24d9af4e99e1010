// Erf on the CPU partition: y = erf(x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_erf(Registry& registry) {
    registry.add("Erf", [](const NodeInfo& node) { return unary(node, [](float x) { return std::erf(x); }); });
}

}  // namespace npuforge::cpu
