// And, Or, Xor, Not on the CPU partition: bool, with broadcasting.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_logic(Registry& registry) {
    const auto add = [&registry](const char* op, bool (*function)(bool, bool)) {
        registry.add(op, [function](const NodeInfo& node) {
            Kernel kernel = binary(node, [function](auto p, auto q) { return function(p != 0, q != 0); }, true);
            kernel.shape = [node, shape = kernel.shape](const Args& args) {
                shape(args);
                node.check(args.in(0).type == Type::kBool, "bool inputs are needed");
            };
            return kernel;
        });
    };
    add("And", [](bool p, bool q) { return p && q; });
    add("Or", [](bool p, bool q) { return p || q; });
    add("Xor", [](bool p, bool q) { return p != q; });
    registry.add("Not", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [node](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kBool, "a bool input is needed");
            args.out().type = Type::kBool;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = [](const Args& args) {
            const std::int64_t count = args.in(0).shape.count();
            for (std::int64_t i = 0; i < count; ++i)
                args.out().as<std::uint8_t>()[i] = args.in(0).as<std::uint8_t>()[i] == 0;
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
