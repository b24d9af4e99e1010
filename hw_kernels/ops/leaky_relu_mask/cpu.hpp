// LeakyReluMask on the CPU partition: LeakyReLU, and 1 where the input is positive as second output.
#pragma once

#include "hw_kernels/ops/leaky_relu_mask/parallel.hpp"
#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_leaky_relu_mask(Registry& registry) {
    registry.add("npuforge::LeakyReluMask", [](const NodeInfo& node) {
        const float alpha = node.number("alpha", 0.01f);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "input 0 must be float32");
            for (std::size_t i = 0; i < args.output_count; ++i) {
                args.out(i).type = Type::kFloat32;
                args.out(i).shape = args.in(0).shape;
            }
        };
        kernel.run = [=](const Args& args) {
            const float* x = args.in(0).as<float>();
            float *y = args.out(0).as<float>(), *mask = args.output_count > 1 ? args.out(1).as<float>() : nullptr;
            parallel::OnHost{}(args.in(0).shape.count(), parallel::LeakyReluMaskBody{x, y, mask, alpha});
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
