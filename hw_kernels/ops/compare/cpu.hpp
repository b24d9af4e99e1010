// Equal, Greater, GreaterOrEqual, Less, LessOrEqual on the CPU partition, with broadcasting.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_compare(Registry& registry) {
    registry.add("Equal",
                 [](const NodeInfo& node) { return binary(node, [](auto p, auto q) { return p == q; }, true); });
    registry.add("Greater",
                 [](const NodeInfo& node) { return binary(node, [](auto p, auto q) { return p > q; }, true); });
    registry.add("GreaterOrEqual",
                 [](const NodeInfo& node) { return binary(node, [](auto p, auto q) { return p >= q; }, true); });
    registry.add("Less", [](const NodeInfo& node) { return binary(node, [](auto p, auto q) { return p < q; }, true); });
    registry.add("LessOrEqual",
                 [](const NodeInfo& node) { return binary(node, [](auto p, auto q) { return p <= q; }, true); });
}

}  // namespace npuforge::cpu
