// Unsqueeze on the CPU partition: a view; axes as attribute (opset 11) or input (opset 13).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_unsqueeze(Registry& registry) {
    registry.add("Unsqueeze", [](const NodeInfo& node) {
        const std::vector<std::int64_t> attribute = node.integers("axes", {});
        const bool from_attribute = node.has("axes");
        return view([=](const Args& args) {
            const IntegerList axes = from_attribute ? to_list(node, attribute) : read_integers(node, args, 1);
            node.check(axes.present, "axes are missing");
            const Shape& in = args.in(0).shape;
            const int rank = in.rank + axes.size;
            node.check(rank <= kMaxRank, "the result has too many dimensions");
            bool added[kMaxRank] = {};
            for (int i = 0; i < axes.size; ++i) {
                const int axis = normal_axis(node, axes.value[i], rank);
                node.check(!added[axis], "an axis occurs twice");
                added[axis] = true;
            }
            Shape out;
            for (int i = 0, from = 0; i < rank; ++i) out.push(added[i] ? 1 : in.dim[from++]);
            return out;
        });
    });
}

}  // namespace npuforge::cpu
