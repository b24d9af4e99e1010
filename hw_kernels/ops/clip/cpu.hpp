// Clip on the CPU partition: limits as attributes (opset 6) or as scalar inputs (opset 11).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_clip(Registry& registry) {
    registry.add("Clip", [](const NodeInfo& node) {
        constexpr float kLargest = std::numeric_limits<float>::max();  // ONNX's limits where none are given
        const float low = node.number("min", -kLargest), high = node.number("max", kLargest);
        Kernel kernel = unary_number(node, [](auto x) { return x; });
        kernel.shape = [node, shape = kernel.shape](const Args& args) {
            shape(args);
            for (std::size_t i = 1; i < 3; ++i)
                node.check(!args.has(i) || (args.in(i).type == args.in(0).type && args.in(i).shape.count() == 1),
                           "the limits must be single values of the input's type");
        };
        kernel.run = [low, high](const Args& args) {
            with_type(args.in(0).type, [&](auto zero) {
                using T = decltype(zero);
                const T lower = args.has(1) ? args.in(1).as<T>()[0] : saturate<T>(low);
                const T upper = args.has(2) ? args.in(2).as<T>()[0] : saturate<T>(high);
                const T* x = args.in(0).as<T>();
                T* y = args.out().as<T>();
                const std::int64_t count = args.in(0).shape.count();
                for (std::int64_t i = 0; i < count; ++i) y[i] = std::min(std::max(x[i], lower), upper);
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
