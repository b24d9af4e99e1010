// Slice on the CPU partition: starts, ends, axes, steps as attributes (opset 9) or inputs (opset 10 on).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_slice(Registry& registry) {
    struct Plan {
        Shape shape;
        std::int64_t start[kMaxRank] = {}, step[kMaxRank] = {};
    };
    registry.add("Slice", [](const NodeInfo& node) {
        const bool from_attribute = node.has("starts");
        const std::vector<std::int64_t> starts_a = node.integers("starts", {}), ends_a = node.integers("ends", {}),
                                        axes_a = node.integers("axes", {}), steps_a = node.integers("steps", {});
        const bool axes_given = node.has("axes"), steps_given = node.has("steps");
        const auto plan = [=](const Args& args) {
            const IntegerList starts = from_attribute ? to_list(node, starts_a) : read_integers(node, args, 1);
            const IntegerList ends = from_attribute ? to_list(node, ends_a) : read_integers(node, args, 2);
            const IntegerList axes = axes_given ? to_list(node, axes_a) : read_integers(node, args, 3);
            const IntegerList steps = steps_given ? to_list(node, steps_a) : read_integers(node, args, 4);
            const Shape& in = args.in(0).shape;
            node.check(starts.present && ends.present && starts.size == ends.size,
                       "starts and ends must have the same length");
            node.check(!axes.present || axes.size == starts.size, "axes must have the length of starts");
            node.check(!steps.present || steps.size == starts.size, "steps must have the length of starts");
            Plan out;
            out.shape = in;
            for (int i = 0; i < in.rank; ++i) out.step[i] = 1;
            for (int i = 0; i < starts.size; ++i) {
                const int axis = normal_axis(node, axes.present ? axes.value[i] : i, in.rank);
                const std::int64_t dim = in.dim[axis], given = steps.present ? steps.value[i] : 1;
                node.check(given != 0, "a step of 0");
                const std::int64_t step = std::min(std::max(given, -dim - 1), dim + 1);  // further is no further
                const auto limit = [&](std::int64_t value, std::int64_t low, std::int64_t high) {
                    if (value < 0) value = value < -dim ? -1 : value + dim;  // below the first element stays below it
                    return std::min(std::max(value, low), high);
                };
                const std::int64_t start =
                    step > 0 ? limit(starts.value[i], 0, dim) : limit(starts.value[i], 0, dim - 1);
                const std::int64_t end = step > 0 ? limit(ends.value[i], 0, dim) : limit(ends.value[i], -1, dim);
                const std::int64_t span = step > 0 ? end - start : start - end;
                const std::int64_t stride = step > 0 ? step : -step;
                out.shape.dim[axis] = dim == 0 ? 0 : std::max<std::int64_t>(0, (span + stride - 1) / stride);
                out.start[axis] = start;
                out.step[axis] = step;
            }
            return out;
        };
        Kernel kernel;
        kernel.shape = [plan](const Args& args) {
            const Plan p = plan(args);
            args.out().type = args.in(0).type;
            args.out().shape = p.shape;
        };
        kernel.run = [plan](const Args& args) {
            const Plan p = plan(args);
            const Tensor& x = args.in(0);
            std::int64_t own[kMaxRank] = {}, strides[kMaxRank] = {}, base = 0;
            broadcast_strides(x.shape, x.shape, own);
            for (int i = 0; i < x.shape.rank; ++i) {
                base += p.start[i] * own[i];
                strides[i] = own[i] * p.step[i];
            }
            const std::size_t item = type_bytes(x.type);
            gather_strided(x.as<std::uint8_t>() + base * static_cast<std::int64_t>(item), strides, p.shape,
                           args.out().as<std::uint8_t>(), item);
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
