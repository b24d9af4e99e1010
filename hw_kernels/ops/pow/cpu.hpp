// Pow on the CPU partition: y = a ** b with broadcasting.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_pow(Registry& registry) {
    registry.add("Pow", [](const NodeInfo& node) {
        return binary(node, [](auto p, auto q) {
            using T = decltype(p);
            if constexpr (std::is_same_v<T, float>) return q == 2.0f ? p * p : std::pow(p, q);
            return static_cast<T>(std::pow(static_cast<double>(p), static_cast<double>(q)));
        });
    });
}

}  // namespace npuforge::cpu
