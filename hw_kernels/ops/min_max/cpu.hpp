// Min and Max of any number of inputs on the CPU partition, with broadcasting.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_min_max(Registry& registry) {
    const auto variadic = [](const NodeInfo& node, bool largest) {
        Kernel kernel;
        kernel.shape = [node](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "inputs must be float32");
            Shape shape = args.in(0).shape;
            for (std::size_t i = 1; i < args.input_count; ++i) {
                node.check(args.has(i) && args.in(i).type == Type::kFloat32, "inputs must be float32");
                shape = broadcast(node, shape, args.in(i).shape);
            }
            args.out().type = Type::kFloat32;
            args.out().shape = shape;
        };
        kernel.run = [largest](const Args& args) {
            Tensor& y = args.out();
            float* out = y.as<float>();
            const Tensor& first = args.in(0);
            broadcast_apply(first.as<float>(), first.shape, first.as<float>(), first.shape, out, y.shape,
                            [](float p, float) { return p; });
            for (std::size_t i = 1; i < args.input_count; ++i) {
                const Tensor& x = args.in(i);
                if (largest)
                    broadcast_apply(out, y.shape, x.as<float>(), x.shape, out, y.shape,
                                    [](float p, float q) { return p < q ? q : p; });
                else
                    broadcast_apply(out, y.shape, x.as<float>(), x.shape, out, y.shape,
                                    [](float p, float q) { return q < p ? q : p; });
            }
        };
        return kernel;
    };
    registry.add("Max", [variadic](const NodeInfo& node) { return variadic(node, true); });
    registry.add("Min", [variadic](const NodeInfo& node) { return variadic(node, false); });
}

}  // namespace npuforge::cpu
