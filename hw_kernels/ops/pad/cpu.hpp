// Pad on the CPU partition: constant, reflect, edge, wrap; pads as attribute (opset 2) or input (opset 11), axes (opset
// 18).
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
        node.check(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap",
                   "mode expected constant, reflect, edge or wrap");
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
                constexpr std::int64_t kLimit = std::int64_t{1} << 31;
                node.check(begin > -kLimit && begin < kLimit && end > -kLimit && end < kLimit,
                           "pads must be below 2^31");
                node.check(mode != "reflect" || (begin < in.dim[axis] && end < in.dim[axis]),
                           "reflection needs pads below the size");
                out.begin[axis] = begin;
                out.shape.dim[axis] += begin + end;
                node.check(out.shape.dim[axis] >= 0, "the pads remove more than the axis has");
                node.check(mode == "constant" || in.dim[axis] > 0 || out.shape.dim[axis] == 0,
                           "an empty axis has nothing to repeat");
            }
            return out;
        };
        // Where output position `at` of an axis of `size` comes from; -1: the constant.
        const auto source = [mode](std::int64_t at, std::int64_t size) -> std::int64_t {
            if (at >= 0 && at < size) return at;
            if (mode == "constant") return -1;
            if (mode == "edge") return at < 0 ? 0 : size - 1;
            if (mode == "wrap") return (at % size + size) % size;
            return at < 0 ? -at : 2 * (size - 1) - at;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            args.out().type = args.in(0).type;
            args.out().shape = plan(args).shape;
            node.check(!args.has(2) || (args.in(2).type == args.in(0).type && args.in(2).shape.count() == 1),
                       "the value must be one of the input's type");
        };
        kernel.scratch = [=](const Args& args) {
            const Shape shape = plan(args).shape;
            std::int64_t positions = 0;
            for (int d = 0; d < shape.rank; ++d) positions += shape.dim[d];
            return static_cast<std::size_t>(positions) * sizeof(std::int64_t);
        };
        kernel.run = [=](const Args& args) {
            const Plan p = plan(args);
            const Tensor& x = args.in(0);
            const int rank = p.shape.rank;
            if (p.shape.count() == 0) return;
            const std::int64_t* from[kMaxRank] = {};
            auto* next = reinterpret_cast<std::int64_t*>(args.scratch);
            for (int d = 0; d < rank; ++d) {
                from[d] = next;
                for (std::int64_t i = 0; i < p.shape.dim[d]; ++i) *next++ = source(i - p.begin[d], x.shape.dim[d]);
            }
            const std::int64_t width = rank ? p.shape.dim[rank - 1] : 1, rows = p.shape.count(0, std::max(0, rank - 1));
            with_type(x.type, [&](auto zero) {
                using T = decltype(zero);
                const T value = args.has(2) ? args.in(2).as<T>()[0] : static_cast<T>(value_a);
                T* out = args.out().as<T>();
                for (std::int64_t row = 0; row < rows; ++row, out += width) {
                    std::int64_t rest = row, at = 0;
                    bool inside = true;
                    for (int d = rank - 2; d >= 0; --d) {
                        const std::int64_t position = from[d][rest % p.shape.dim[d]];
                        rest /= p.shape.dim[d];
                        inside = inside && position >= 0;
                        at += position * x.shape.count(d + 1, rank);
                    }
                    if (rank == 0)
                        out[0] = x.as<T>()[0];
                    else if (!inside)
                        std::fill_n(out, width, value);
                    else
                        for (std::int64_t i = 0; i < width; ++i)
                            out[i] = from[rank - 1][i] < 0 ? value : x.as<T>()[at + from[rank - 1][i]];
                }
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
