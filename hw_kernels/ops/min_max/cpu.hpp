// Min and Max of any number of inputs on the CPU partition, with broadcasting; NaN wins.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_min_max(Registry& registry) {
    const auto same = [](auto p, auto) { return p; };
    registry.add("Max", [same](const NodeInfo& node) {
        return variadic(node, [](auto p, auto q) { return p < q || q != q ? q : p; }, same);
    });
    registry.add("Min", [same](const NodeInfo& node) {
        return variadic(node, [](auto p, auto q) { return q < p || q != q ? q : p; }, same);
    });
}

}  // namespace npuforge::cpu
