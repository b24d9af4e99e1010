// SiluPolynomial on the CPU partition: SiLU by a polynomial of degree 5 on [-8, 8], 0 below, x above (op.py).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline float silu_polynomial(float x) {
    if (x < -8.0f) return 0.0f;
    if (x > 8.0f) return x;
    const float u = x * x;
    return 0.5f * x + 0.19444452023451986f + u * (0.11605960615209412f - u * 0.0009324674402457998f);
}

inline void register_silu_polynomial(Registry& registry) {
    registry.add("npuforge::SiluPolynomial",
                 [](const NodeInfo& node) { return unary(node, [](float x) { return silu_polynomial(x); }); });
}

}  // namespace npuforge::cpu
