// Identity and Dropout (inference) on the CPU partition: a view.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_identity(Registry& registry) {
    const auto make = [](const NodeInfo&) { return view([](const Args& args) { return args.in(0).shape; }); };
    registry.add("Identity", make);
    registry.add("Dropout", make);
}

}  // namespace npuforge::cpu
