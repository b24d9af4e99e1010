// SiluPolynomial on the CPU partition: SiLU by a polynomial of degree 5 on [-8, 8], 0 below, x above (op.py).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_silu_polynomial(Registry& registry) {
    registry.add("npuforge::SiluPolynomial",
                 [](const NodeInfo& node) { return unary(node, [](float x) { return silu_polynomial(x); }); });
}

}  // namespace npuforge::cpu
