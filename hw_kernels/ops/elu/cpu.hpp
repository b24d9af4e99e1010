// Elu, Celu and Selu on the CPU partition.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_elu(Registry& registry) {
    registry.add("Elu", [](const NodeInfo& node) {
        return unary(node, [alpha = node.number("alpha", 1.0f)](float x) { return elu(x, alpha); });
    });
    registry.add("Celu", [](const NodeInfo& node) {
        return unary(node, [alpha = node.number("alpha", 1.0f)](float x) {
            return x < 0.0f ? alpha * std::expm1(x / alpha) : x;
        });
    });
    registry.add("Selu", [](const NodeInfo& node) {
        const float alpha = node.number("alpha", 1.67326319217681884765625f),
                    gamma = node.number("gamma", 1.05070102214813232421875f);
        return unary(node, [alpha, gamma](float x) { return gamma * (x > 0.0f ? x : alpha * (std::exp(x) - 1.0f)); });
    });
}

}  // namespace npuforge::cpu
