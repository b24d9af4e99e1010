// Concat on the CPU partition: any axis, any number of inputs of one type.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_concat(Registry& registry) {
    registry.add("Concat", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0), "at least one input is needed");
            Shape out = args.in(0).shape;
            const int axis = normal_axis(node, attribute, out.rank);
            for (std::size_t i = 1; i < args.input_count; ++i) {
                const Tensor& x = args.in(i);
                node.check(x.type == args.in(0).type, "inputs have different types");
                node.check(x.shape.rank == out.rank, "inputs have different ranks");
                for (int d = 0; d < out.rank; ++d)
                    if (d != axis && x.shape.dim[d] != out.dim[d])
                        node.fail("shapes " + args.in(0).shape.text() + " and " + x.shape.text() + " do not join");
                out.dim[axis] += x.shape.dim[axis];
            }
            args.out().type = args.in(0).type;
            args.out().shape = out;
        };
        kernel.run = [=](const Args& args) {
            Tensor& y = args.out();
            const int axis = normal_axis(node, attribute, y.shape.rank);
            const std::size_t item = type_bytes(y.type);
            const std::int64_t outer = y.shape.count(0, axis);
            const std::size_t row = static_cast<std::size_t>(y.shape.count(axis, y.shape.rank)) * item;
            std::size_t offset = 0;
            for (std::size_t i = 0; i < args.input_count; ++i) {
                const Tensor& x = args.in(i);
                const std::size_t bytes = static_cast<std::size_t>(x.shape.count(axis, x.shape.rank)) * item;
                if (bytes == 0) continue;
                for (std::int64_t o = 0; o < outer; ++o)
                    std::memcpy(y.as<std::uint8_t>() + static_cast<std::size_t>(o) * row + offset,
                                x.as<std::uint8_t>() + static_cast<std::size_t>(o) * bytes, bytes);
                offset += bytes;
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
