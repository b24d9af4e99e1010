// CustomGELU on the CPU partition: GELU in the tanh form.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_custom_gelu(Registry& registry) {
    registry.add("com.example::CustomGELU",
                 [](const NodeInfo& node) { return unary(node, [](float x) { return gelu_tanh(x); }); });
}

}  // namespace npuforge::cpu
