// Identity and Dropout (inference) on the CPU partition: a view; with Dropout's mask, which keeps everything, a copy.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_identity(Registry& registry) {
    const auto make = [](const NodeInfo&) { return view([](const Args& args) { return args.in(0).shape; }); };
    registry.add("Identity", make);
    registry.add("Dropout", [make](const NodeInfo& node) {
        if (node.output_count() < 2) return make(node);
        Kernel kernel;
        kernel.shape = [](const Args& args) {
            args.out(0).type = args.in(0).type;
            args.out(1).type = Type::kBool;
            args.out(0).shape = args.out(1).shape = args.in(0).shape;
        };
        kernel.run = [](const Args& args) {
            std::memcpy(args.out(0).data, args.in(0).data, args.in(0).bytes());
            std::memset(args.out(1).data, 1, args.out(1).bytes());
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
