// Abs on the CPU partition: y = |x|.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_abs(Registry& registry) {
    registry.add("Abs", [](const NodeInfo& node) { return unary(node, [](float x) { return std::fabs(x); }); });
}

}  // namespace npuforge::cpu
