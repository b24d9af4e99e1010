// Pad on the CPU partition: constant, reflect, edge; pads as attribute (opset 2) or input (opset 11), axes (opset 18).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_pad(Registry& registry) {
    struct Plan {
        Shape shape;
        std::int64_t begin[kMaxRank] = {};
    };
    registry.add("Pad", [](const NodeInfo& node) {
        const std::string mode = node.string("mode", "constant");
        node.check(mode == "constant" || mode == "reflect" || mode == "edge",
                   "mode expected constant, reflect or edge");
        const bool from_attribute = node.has("pads");
        const std::vector<std::int64_t> attribute = node.integers("pads", {});
        const float value_a = node.number("value", 0.0f);
        const auto plan = [=](const Args& args) {
            const IntegerList pads = from_attribute ? to_list(node, attribute) : read_integers(node, args, 1);
            const IntegerList axes = read_integers(node, args, 3);
            const Shape& in = args.in(0).shape;
            const int count = axes.present ? axes.size : in.rank;
            node.check(pads.present && pads.size == 2 * count, "two pads for every axis are needed");
            Plan out;
            out.shape = in;
            for (int i = 0; i < count; ++i) {
                const int axis = axes.present ? normal_axis(node, axes.value[i], in.rank) : i;
                const std::int64_t begin = pads.value[i], end = pads.value[i + count];
                node.check(mode != "reflect" || (begin < in.dim[axis] && end < in.dim[axis]),
                           "reflection needs pads below the size");
                out.begin[axis] = begin;
                out.shape.dim[axis] += begin + end;
                node.check(out.shape.dim[axis] >= 0, "the pads remove more than the axis has");
            }
            return out;
        };
        Kernel kernel;
        kernel.shape = [plan](const Args& args) {
            args.out().type = args.in(0).type;
            args.out().shape = plan(args).shape;
        };
        kernel.run = [=](const Args& args) {
            const Plan p = plan(args);
            const Tensor& x = args.in(0);
            with_type(x.type, [&](auto zero) {
                using T = decltype(zero);
                const T value = args.has(2) ? args.in(2).as<T>()[0] : static_cast<T>(value_a);
                const std::int64_t total = p.shape.count();
                for (std::int64_t i = 0; i < total; ++i) {
                    std::int64_t rest = i, at = 0, step = 1;
                    bool inside = true;
                    for (int d = p.shape.rank - 1; d >= 0; --d) {
                        std::int64_t position = rest % p.shape.dim[d] - p.begin[d];
                        rest /= p.shape.dim[d];
                        const std::int64_t dim = x.shape.dim[d];
                        if (position < 0 || position >= dim) {
                            if (mode == "constant") {
                                inside = false;
                                break;
                            }
                            if (mode == "edge")
                                position = std::min(std::max<std::int64_t>(position, 0), dim - 1);
                            else
                                position = position < 0 ? -position : 2 * (dim - 1) - position;
                        }
                        at += position * step;
                        step *= dim;
                    }
                    args.out().as<T>()[i] = inside ? x.as<T>()[at] : value;
                }
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
