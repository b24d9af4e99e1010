// Clip on the CPU partition: limits as attributes (opset 6) or as scalar inputs (opset 11).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_clip(Registry& registry) {
    registry.add("Clip", [](const NodeInfo& node) {
        constexpr float kLargest = std::numeric_limits<float>::max();  // ONNX's limits where none are given
        const float low = node.number("min", -kLargest), high = node.number("max", kLargest);
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.run = [low, high](const Args& args) {
            const float lower = args.has(1) ? args.in(1).as<float>()[0] : low;
            const float upper = args.has(2) ? args.in(2).as<float>()[0] : high;
            const float* x = args.in(0).as<float>();
            float* y = args.out().as<float>();
            const std::int64_t count = args.in(0).shape.count();
            for (std::int64_t i = 0; i < count; ++i) y[i] = std::min(std::max(x[i], lower), upper);
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
