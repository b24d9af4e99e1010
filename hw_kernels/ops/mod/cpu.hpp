// Mod on the CPU partition: sign of the divisor (integers), or C fmod with fmod = 1.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_mod(Registry& registry) {
    registry.add("Mod", [](const NodeInfo& node) {
        const bool fmod = node.integer("fmod", 0) != 0;
        return binary(node, [node, fmod](auto p, auto q) {
            using T = decltype(p);
            if constexpr (std::is_same_v<T, float>) {
                return std::fmod(p, q);
            } else {
                if (q == 0) node.fail("remainder of an integer division by zero");
                if (std::is_signed_v<T> && q == static_cast<T>(-1)) return T{0};  // the lowest value has no opposite
                const T r = static_cast<T>(p % q);
                return static_cast<T>(!fmod && r != 0 && (r < 0) != (q < 0) ? r + q : r);
            }
        });
    });
}

}  // namespace npuforge::cpu
