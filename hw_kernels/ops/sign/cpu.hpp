// Sign on the CPU partition: y = -1, 0 or 1; NaN stays.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_sign(Registry& registry) {
    registry.add("Sign", [](const NodeInfo& node) {
        return unary_number(node, [](auto x) {
            using T = decltype(x);
            return x != x ? x : static_cast<T>((x > T{}) - (x < T{}));
        });
    });
}

}  // namespace npuforge::cpu
