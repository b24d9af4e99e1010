// Relu on the CPU partition: y = max(x, 0), of any number type.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_relu(Registry& registry) {
    registry.add("Relu", [](const NodeInfo& node) {
        return unary_number(node, [](auto x) {
            using T = decltype(x);
            if constexpr (std::is_floating_point_v<T>)
                return relu(x);
            else
                return x > T{} ? x : T{};
        });
    });
}

}  // namespace npuforge::cpu
