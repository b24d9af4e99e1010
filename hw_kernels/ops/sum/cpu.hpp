// Sum and Mean of any number of inputs on the CPU partition, with broadcasting.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_sum(Registry& registry) {
    const auto plus = [](auto p, auto q) { return wrapped(p, q, [](auto a, auto b) { return a + b; }); };
    registry.add("Sum", [plus](const NodeInfo& node) { return variadic(node, plus, [](auto p, auto) { return p; }); });
    registry.add("Mean",
                 [plus](const NodeInfo& node) { return variadic(node, plus, [](auto p, auto n) { return p / n; }); });
}

}  // namespace npuforge::cpu
