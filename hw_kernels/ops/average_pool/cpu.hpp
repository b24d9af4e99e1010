// AveragePool and GlobalAveragePool on the CPU partition; pads count if count_include_pad, those only added by
// ceil_mode never.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_window.hpp"

namespace npuforge::cpu {

inline void register_average_pool(Registry& registry) {
    registry.add("AveragePool", [](const NodeInfo& node) {
        const WindowRule rule(node);
        const bool include = node.integer("count_include_pad", 0) != 0;
        // The kit's own attribute: of the pads, those that are there only for ceil_mode.
        const std::vector<std::int64_t> added = node.integers("ceil_pads", {});
        // The axes with only those pads left that count as taps.
        const auto counted = [=](Windows windows, int spatial) {
            const auto count = static_cast<std::size_t>(spatial);
            for (std::size_t i = 0; i < count; ++i) {
                Window& w = windows.axis[kSpatial - count + i];
                w.pad_begin = include ? w.pad_begin - (added.empty() ? 0 : added[i]) : 0;
                w.pad_end = include ? w.pad_end - (added.empty() ? 0 : added[i + count]) : 0;
            }
            return windows;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "a float32 map is needed");
            const Shape& x = args.in(0).shape;
            const Windows windows = rule.forward(x);
            node.check(added.empty() || added.size() == 2 * static_cast<std::size_t>(x.rank - 2),
                       "ceil_pads needs two values for every spatial dimension");
            args.out().type = Type::kFloat32;
            args.out().shape = WindowRule::result(x, x.dim[1], windows);
        };
        kernel.run = [=](const Args& args) {
            const Shape& x = args.in(0).shape;
            const Windows windows = rule.forward(x), valid = counted(windows, x.rank - 2);
            // Taps that lie in the map or in the pads that count.
            const auto divisor = [&](std::size_t i, std::int64_t position) {
                const auto [first, last] = windows.axis[i].taps(position, -valid.axis[i].pad_begin,
                                                                windows.axis[i].in + valid.axis[i].pad_end);
                return last - first;
            };
            const float* in = args.in(0).as<float>();
            float* out = args.out().as<float>();
            for (std::int64_t map = 0; map < x.count(0, 2); ++map, in += windows.in())
                each_window(windows, [&](std::int64_t d, std::int64_t v, std::int64_t u) {
                    float sum = 0.0f;
                    each_tap(windows, d, v, u, [&](std::int64_t at, std::int64_t) { sum += in[at]; });
                    *out++ = sum / static_cast<float>(divisor(0, d) * divisor(1, v) * divisor(2, u));
                });
        };
        return kernel;
    });
    registry.add("GlobalAveragePool", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [=](const Args& args) { global_pool_shape(node, args); };
        kernel.run = [](const Args& args) {
            const Shape& x = args.in(0).shape;
            const std::int64_t map = x.count(2, x.rank), maps = x.count(0, 2);
            const float* in = args.in(0).as<float>();
            for (std::int64_t i = 0; i < maps; ++i, in += map) {
                float result = 0.0f;
                for (std::int64_t j = 0; j < map; ++j) result += in[j];
                args.out().as<float>()[i] = result / static_cast<float>(map);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
