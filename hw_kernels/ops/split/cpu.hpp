// Split on the CPU partition: sizes as attribute (opset 11), input (opset 13), num_outputs (opset 18), or equal parts.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_split(Registry& registry) {
    registry.add("Split", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", 0);
        const bool sizes_given = node.has("split");
        const std::vector<std::int64_t> sizes_a = node.integers("split", {});
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            const Shape in = args.in(0).shape;
            const int axis = normal_axis(node, attribute, in.rank);
            const IntegerList sizes = sizes_given ? to_list(node, sizes_a) : read_integers(node, args, 1);
            const auto parts = static_cast<std::int64_t>(args.output_count);
            node.check(!sizes.present || sizes.size == parts, "split needs one size for each output");
            const std::int64_t equal = (in.dim[axis] + parts - 1) / parts;  // the last part may be smaller
            std::int64_t total = 0;
            for (std::int64_t i = 0; i < parts; ++i) {
                const std::int64_t size = sizes.present ? sizes.value[i] : std::min(equal, in.dim[axis] - equal * i);
                node.check(size >= 0 && (!sizes.present || size <= std::int64_t{1} << 32),
                           "a part of negative or impossible size");
                Tensor& out = args.out(static_cast<std::size_t>(i));
                out.type = args.in(0).type;
                out.shape = in;
                out.shape.dim[axis] = size;
                total += size;
            }
            if (total != in.dim[axis])
                node.fail("the parts add up to " + std::to_string(total) + ", the axis has " +
                          std::to_string(in.dim[axis]));
        };
        kernel.run = [=](const Args& args) {
            const Tensor& x = args.in(0);
            const int axis = normal_axis(node, attribute, x.shape.rank);
            const std::size_t item = type_bytes(x.type);
            const std::int64_t outer = x.shape.count(0, axis);
            const std::size_t inner = static_cast<std::size_t>(x.shape.count(axis + 1, x.shape.rank)) * item;
            const std::size_t row = static_cast<std::size_t>(x.shape.dim[axis]) * inner;
            std::size_t offset = 0;
            for (std::size_t i = 0; i < args.output_count; ++i) {
                Tensor& out = args.out(i);
                const std::size_t bytes = static_cast<std::size_t>(out.shape.dim[axis]) * inner;
                for (std::int64_t o = 0; o < outer; ++o)
                    std::memcpy(out.as<std::uint8_t>() + static_cast<std::size_t>(o) * bytes,
                                x.as<std::uint8_t>() + static_cast<std::size_t>(o) * row + offset, bytes);
                offset += bytes;
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
