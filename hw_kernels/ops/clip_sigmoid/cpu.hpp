// ClipSigmoid on the CPU partition: sigmoid clipped to [0.1, 0.9].
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_clip_sigmoid(Registry& registry) {
    registry.add("npuforge::ClipSigmoid", [](const NodeInfo& node) {
        return unary(node, [](float x) { return clip(sigmoid(x), 0.1f, 0.9f); });
    });
}

}  // namespace npuforge::cpu
