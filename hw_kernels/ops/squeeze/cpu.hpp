// Squeeze on the CPU partition: a view; axes as attribute (opset 11) or input (opset 13), all of size 1 when absent.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_squeeze(Registry& registry) {
    registry.add("Squeeze", [](const NodeInfo& node) {
        const std::vector<std::int64_t> attribute = node.integers("axes", {});
        const bool from_attribute = node.has("axes");
        return view([=](const Args& args) {
            const IntegerList axes = from_attribute ? to_list(node, attribute) : read_integers(node, args, 1);
            const Shape& in = args.in(0).shape;
            bool drop[kMaxRank] = {};
            for (int i = 0; i < in.rank; ++i) drop[i] = !axes.present && in.dim[i] == 1;
            for (int i = 0; i < axes.size; ++i) {
                const int axis = normal_axis(node, axes.value[i], in.rank);
                if (in.dim[axis] != 1)
                    node.fail("dimension " + std::to_string(axis) + " is " + std::to_string(in.dim[axis]) + ", not 1");
                drop[axis] = true;
            }
            Shape out;
            for (int i = 0; i < in.rank; ++i)
                if (!drop[i]) out.push(in.dim[i]);
            return out;
        });
    });
}

}  // namespace npuforge::cpu
