// Neg on the CPU partition: y = -x.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_neg(Registry& registry) {
    registry.add("Neg", [](const NodeInfo& node) {
        return unary_number(node,
                            [](auto x) { return wrapped(decltype(x){}, x, [](auto p, auto q) { return p - q; }); });
    });
}

}  // namespace npuforge::cpu
