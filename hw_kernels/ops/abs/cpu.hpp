// Abs on the CPU partition: y = |x|; the lowest integer stays, as it has no opposite.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_abs(Registry& registry) {
    registry.add("Abs", [](const NodeInfo& node) { return unary_number(node, [](auto x) { return magnitude(x); }); });
}

}  // namespace npuforge::cpu
