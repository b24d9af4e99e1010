// MaxUnpool on the CPU partition: every value back at its position in the map that MaxPool reduced, 0 elsewhere.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_window.hpp"

namespace npuforge::cpu {

inline void register_max_unpool(Registry& registry) {
    registry.add("MaxUnpool", [](const NodeInfo& node) {
        const WindowRule rule(node);
        // The map that was pooled, from the windows' geometry.
        const auto pooled = [=](const Args& args) {
            const Shape& x = args.in(0).shape;
            const Windows windows = rule.axes(x);
            Shape out{x.dim[0], x.dim[1]};
            for (int i = 0; i < x.rank - 2; ++i) {
                const Window& w = windows.axis[static_cast<std::size_t>(kSpatial - (x.rank - 2) + i)];
                out.push((x.dim[2 + i] - 1) * w.stride - w.pad_begin - w.pad_end + w.kernel);
                node.check(out.dim[2 + i] > 0, "the result is empty");
            }
            return out;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kInt64,
                "float32 values and int64 positions are needed");
            node.check(args.in(0).shape == args.in(1).shape, "every value needs a position");
            args.out().type = Type::kFloat32;
            args.out().shape = pooled(args);
            const IntegerList wanted = read_integers(node, args, 2);
            if (!wanted.present) return;
            node.check(wanted.size == args.out().shape.rank, "output_shape has another rank");
            for (int i = 0; i < wanted.size; ++i) {
                node.check(wanted.value[i] >= args.out().shape.dim[i], "output_shape is below the pooled map");
                args.out().shape.dim[i] = wanted.value[i];
            }
        };
        kernel.run = [=](const Args& args) {
            const Shape map = pooled(args);
            const Shape& y = args.out().shape;
            const std::int64_t count = args.in(0).shape.count(), total = map.count();
            std::fill_n(args.out().as<float>(), y.count(), 0.0f);
            for (std::int64_t i = 0; i < count; ++i) {
                std::int64_t rest = normal_index(node, args.in(1).as<std::int64_t>()[i], total), at = 0, step = 1;
                for (int d = map.rank - 1; d >= 0; --d) {
                    at += rest % map.dim[d] * step;
                    rest /= map.dim[d];
                    step *= y.dim[d];
                }
                args.out().as<float>()[at] = args.in(0).as<float>()[i];
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
