// MaxPool (values and positions) and GlobalMaxPool on the CPU partition; border taps and NaN do not take part.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_window.hpp"

namespace npuforge::cpu {

/// Largest taps of every window of one map; `positions` (may be null): where they lie, plus `base`.
template <typename T>
void max_pool_map(const Windows& w, const T* in, T* out, std::int64_t* positions, std::int64_t base,
                  bool column_major) {
    constexpr T kLowest =
        std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    each_window(w, [&](std::int64_t d, std::int64_t y, std::int64_t x) {
        T best = kLowest;
        std::int64_t where = -1;
        each_tap(w, d, y, x, [&](std::int64_t at, std::int64_t) {
            if (where < 0) where = at;
            if (in[at] > best) {
                best = in[at];
                where = at;
            }
        });
        *out++ = best;
        if (!positions) return;
        const Window &height = w.axis[1], &width = w.axis[2];
        if (column_major && where >= 0)
            where = (where % width.in * height.in + where / width.in % height.in) * w.axis[0].in +
                    where / width.in / height.in;
        *positions++ = base + where;
    });
}

inline void register_max_pool(Registry& registry) {
    registry.add("MaxPool", [](const NodeInfo& node) {
        const WindowRule rule(node);
        const bool column_major = node.integer("storage_order", 0) != 0;
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0), "a map is needed");
            with_number(node, args.in(0).type, [](auto) {});
            const Shape& x = args.in(0).shape;
            args.out().type = args.in(0).type;
            args.out().shape = WindowRule::result(x, x.dim[1], rule.forward(x));
            if (args.output_count > 1) {
                args.out(1).type = Type::kInt64;
                args.out(1).shape = args.out().shape;
            }
        };
        kernel.run = [=](const Args& args) {
            const Shape& x = args.in(0).shape;
            const Windows windows = rule.forward(x);
            auto* positions = args.output_count > 1 ? args.out(1).as<std::int64_t>() : nullptr;
            with_type(args.in(0).type, [&](auto zero) {
                using T = decltype(zero);
                for (std::int64_t map = 0; map < x.count(0, 2); ++map)
                    max_pool_map(
                        windows, args.in(0).as<T>() + map * windows.in(), args.out().as<T>() + map * windows.out(),
                        positions ? positions + map * windows.out() : nullptr, map * windows.in(), column_major);
            });
        };
        return kernel;
    });
    registry.add("GlobalMaxPool", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [=](const Args& args) { global_pool_shape(node, args); };
        kernel.run = [](const Args& args) {
            const Shape& x = args.in(0).shape;
            const std::int64_t map = x.count(2, x.rank), maps = x.count(0, 2);
            const float* in = args.in(0).as<float>();
            for (std::int64_t i = 0; i < maps; ++i, in += map) {
                float result = -std::numeric_limits<float>::infinity();
                for (std::int64_t j = 0; j < map; ++j) result = std::max(result, in[j]);
                args.out().as<float>()[i] = result;
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
