// IsNaN and IsInf on the CPU partition.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// y = f(x), a bool for every float32.
template <typename F>
Kernel float_predicate(const NodeInfo& node, F f) {
    Kernel kernel = unary(node, [](float x) { return x; });
    kernel.shape = [shape = kernel.shape](const Args& args) {
        shape(args);
        args.out().type = Type::kBool;
    };
    kernel.run = [f](const Args& args) {
        const std::int64_t count = args.in(0).shape.count();
        for (std::int64_t i = 0; i < count; ++i) args.out().as<std::uint8_t>()[i] = f(args.in(0).as<float>()[i]);
    };
    return kernel;
}

inline void register_is_nan(Registry& registry) {
    registry.add("IsNaN", [](const NodeInfo& node) { return float_predicate(node, [](float x) { return x != x; }); });
    registry.add("IsInf", [](const NodeInfo& node) {
        const bool positive = node.integer("detect_positive", 1) != 0,
                   negative = node.integer("detect_negative", 1) != 0;
        return float_predicate(
            node, [positive, negative](float x) { return std::isinf(x) && (x > 0.0f ? positive : negative); });
    });
}

}  // namespace npuforge::cpu
