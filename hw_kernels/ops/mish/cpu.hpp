// Mish on the CPU partition: y = x * tanh(softplus(x)).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_mish(Registry& registry) {
    registry.add("Mish", [](const NodeInfo& node) { return unary(node, [](float x) { return mish(x); }); });
}

}  // namespace npuforge::cpu
