// Div on the CPU partition: y = a / b with broadcasting; integers truncate towards zero.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_div(Registry& registry) {
    registry.add("Div", [](const NodeInfo& node) {
        return binary(node, [node](auto p, auto q) {
            if (std::is_integral_v<decltype(q)> && q == 0) node.fail("integer division by zero");
            return p / q;
        });
    });
}

}  // namespace npuforge::cpu
