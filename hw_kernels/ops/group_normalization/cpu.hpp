// GroupNormalization and InstanceNormalization on the CPU partition.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// Every group of channels is brought to mean 0 and variance 1; `groups` 0: one per channel. Scale and bias have one
/// value per channel (operator set 21), or one per group (18).
inline Kernel normalise_groups(const NodeInfo& node, std::int64_t groups) {
    const float epsilon = node.number("epsilon", 1e-5f);
    Kernel kernel = unary(node, [](float x) { return x; });
    kernel.shape = [=, shape = kernel.shape](const Args& args) {
        shape(args);
        const Shape& x = args.in(0).shape;
        node.check(x.rank >= 2 && args.has(1) && args.has(2), "data with channels, scale and bias are needed");
        const std::int64_t parts = groups ? groups : x.dim[1];
        node.check(parts > 0 && x.dim[1] % parts == 0, "the groups do not divide the channels");
        for (std::size_t i = 1; i < 3; ++i) {
            const std::int64_t count = args.in(i).shape.count();
            node.check(args.in(i).type == Type::kFloat32 && (count == x.dim[1] || count == parts),
                       "scale and bias need one float32 per channel or group");
        }
    };
    kernel.run = [=](const Args& args) {
        const Shape& shape = args.in(0).shape;
        const std::int64_t channels = shape.dim[1], parts = groups ? groups : channels, each = channels / parts,
                           map = shape.count(2, shape.rank);
        const auto parameter = [&](std::size_t i, std::int64_t channel) {
            return args.in(i).as<float>()[args.in(i).shape.count() == channels ? channel : channel / each];
        };
        normalise_rows(args.in(0).as<float>(), args.out().as<float>(), shape.dim[0] * parts, each * map, epsilon,
                       [&](std::int64_t row, std::int64_t i, float v) {
                           const std::int64_t channel = row % parts * each + i / map;
                           return v * parameter(1, channel) + parameter(2, channel);
                       });
    };
    return kernel;
}

inline void register_group_normalization(Registry& registry) {
    registry.add("GroupNormalization",
                 [](const NodeInfo& node) { return normalise_groups(node, node.integer("num_groups")); });
    registry.add("InstanceNormalization", [](const NodeInfo& node) { return normalise_groups(node, 0); });
}

}  // namespace npuforge::cpu
