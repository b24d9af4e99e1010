// Sigmoid on the CPU partition: y = 1 / (1 + exp(-x)), without overflow.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_sigmoid(Registry& registry) {
    registry.add("Sigmoid", [](const NodeInfo& node) { return unary(node, [](float x) { return sigmoid(x); }); });
}

}  // namespace npuforge::cpu
