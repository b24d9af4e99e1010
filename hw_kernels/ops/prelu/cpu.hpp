// PRelu on the CPU partition: y = x, or slope * x where x < 0; the slope broadcasts to x.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_prelu(Registry& registry) {
    registry.add("PRelu", [](const NodeInfo& node) {
        return binary(node, [](auto x, auto slope) { return x < 0 ? x * slope : x; });
    });
}

}  // namespace npuforge::cpu
