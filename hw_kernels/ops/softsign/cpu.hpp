// Softsign on the CPU partition: y = x / (1 + |x|).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_softsign(Registry& registry) {
    registry.add("Softsign",
                 [](const NodeInfo& node) { return unary(node, [](float x) { return x / (1.0f + std::fabs(x)); }); });
}

}  // namespace npuforge::cpu
