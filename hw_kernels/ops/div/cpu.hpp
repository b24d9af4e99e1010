// Div on the CPU partition: y = a / b with broadcasting; integers truncate towards zero.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_div(Registry& registry) {
    registry.add("Div", [](const NodeInfo& node) {
        return binary(node, [node](auto p, auto q) {
            if (std::is_integral_v<decltype(q)> && q == 0) node.fail("integer division by zero");
            // -1: the lowest value has no opposite
            if (std::is_integral_v<decltype(q)> && q == static_cast<decltype(q)>(-1) && std::is_signed_v<decltype(q)>)
                return wrapped(decltype(p){}, p, [](auto a, auto b) { return a - b; });
            return static_cast<decltype(p)>(p / q);
        });
    });
}

}  // namespace npuforge::cpu
