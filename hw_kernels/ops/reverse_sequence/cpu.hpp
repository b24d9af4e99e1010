// ReverseSequence on the CPU partition: the first n steps of every sequence in reverse order.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_reverse_sequence(Registry& registry) {
    registry.add("ReverseSequence", [](const NodeInfo& node) {
        const std::int64_t time = node.integer("time_axis", 0), batch = node.integer("batch_axis", 1);
        node.check((time == 0 && batch == 1) || (time == 1 && batch == 0), "time and batch are axes 0 and 1");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.in(0).shape.rank >= 2 && args.in(1).type == Type::kInt64 &&
                           args.in(1).shape.count() == args.in(0).shape.dim[batch],
                       "data and one int64 length for every sequence are needed");
            args.out().type = args.in(0).type;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = [=](const Args& args) {
            const Tensor& x = args.in(0);
            const std::int64_t steps = x.shape.dim[time], sequences = x.shape.dim[batch];
            const std::size_t inner = static_cast<std::size_t>(x.shape.count(2, x.shape.rank)) * type_bytes(x.type);
            const auto place = [&](std::int64_t step, std::int64_t sequence) {
                return static_cast<std::size_t>(time == 0 ? step * sequences + sequence : sequence * steps + step) *
                       inner;
            };
            for (std::int64_t b = 0; b < sequences; ++b) {
                const std::int64_t length = args.in(1).as<std::int64_t>()[b];
                if (length < 0 || length > steps)
                    node.fail("a length of " + std::to_string(length) + " in a sequence of " + std::to_string(steps));
                for (std::int64_t t = 0; t < steps; ++t)
                    std::memcpy(args.out().as<std::uint8_t>() + place(t, b),
                                x.as<std::uint8_t>() + place(t < length ? length - 1 - t : t, b), inner);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
