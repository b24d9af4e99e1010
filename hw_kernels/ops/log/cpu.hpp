// Log on the CPU partition: y = ln(x).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_log(Registry& registry) {
    registry.add("Log", [](const NodeInfo& node) { return unary(node, [](float x) { return std::log(x); }); });
}

}  // namespace npuforge::cpu
