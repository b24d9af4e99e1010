// LpPool and GlobalLpPool on the CPU partition: the p-norm of every window.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_window.hpp"

namespace npuforge::cpu {

inline void register_lp_pool(Registry& registry) {
    const auto power_sum = [](float total, float value, std::int64_t p) {
        return total + (p == 1 ? std::fabs(value)
                               : (p == 2 ? value * value : std::pow(std::fabs(value), static_cast<float>(p))));
    };
    const auto root = [](float total, std::int64_t p) {
        return p == 1 ? total : (p == 2 ? std::sqrt(total) : std::pow(total, 1.0f / static_cast<float>(p)));
    };
    registry.add("LpPool", [=](const NodeInfo& node) {
        const WindowRule rule(node);
        const std::int64_t p = node.integer("p", 2);
        node.check(p > 0, "p must be positive");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "a float32 map is needed");
            args.out().type = Type::kFloat32;
            args.out().shape =
                WindowRule::result(args.in(0).shape, args.in(0).shape.dim[1], rule.forward(args.in(0).shape));
        };
        kernel.run = [=](const Args& args) {
            const Shape& x = args.in(0).shape;
            const Windows windows = rule.forward(x);
            const float* in = args.in(0).as<float>();
            float* out = args.out().as<float>();
            for (std::int64_t map = 0; map < x.count(0, 2); ++map, in += windows.in())
                each_window(windows, [&](std::int64_t d, std::int64_t v, std::int64_t u) {
                    float total = 0.0f;
                    each_tap(windows, d, v, u,
                             [&](std::int64_t at, std::int64_t) { total = power_sum(total, in[at], p); });
                    *out++ = root(total, p);
                });
        };
        return kernel;
    });
    registry.add("GlobalLpPool", [=](const NodeInfo& node) {
        const std::int64_t p = node.integer("p", 2);
        node.check(p > 0, "p must be positive");
        Kernel kernel;
        kernel.shape = [=](const Args& args) { global_pool_shape(node, args); };
        kernel.run = [=](const Args& args) {
            const Shape& x = args.in(0).shape;
            const std::int64_t map = x.count(2, x.rank);
            for (std::int64_t i = 0; i < x.count(0, 2); ++i) {
                float total = 0.0f;
                for (std::int64_t j = 0; j < map; ++j) total = power_sum(total, args.in(0).as<float>()[i * map + j], p);
                args.out().as<float>()[i] = root(total, p);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
