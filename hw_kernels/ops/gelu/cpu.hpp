// Gelu on the CPU partition: exact, or the tanh form with approximate = "tanh".
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_gelu(Registry& registry) {
    registry.add("Gelu", [](const NodeInfo& node) {
        const bool tanh_form = node.string("approximate", "none") == "tanh";
        return unary(node, [tanh_form](float x) { return tanh_form ? gelu_tanh(x) : gelu(x); });
    });
}

}  // namespace npuforge::cpu
