// Softmax and LogSoftmax on the CPU partition: one axis (opset 13), -1 when absent; `flatten` = 1 gives the older rule
// (all axes from `axis` on).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_softmax(Registry& registry) {
    const auto make = [](const NodeInfo& node, bool logarithm) {
        const bool flatten = node.integer("flatten", 0) != 0;
        const std::int64_t attribute = node.integer("axis", flatten ? 1 : -1);
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.run = [=](const Args& args) {
            const Tensor& x = args.in(0);
            const int axis = normal_axis(node, attribute, x.shape.rank);
            const std::int64_t outer = x.shape.count(0, axis);
            const std::int64_t size = flatten ? x.shape.count(axis, x.shape.rank) : x.shape.dim[axis];
            const std::int64_t inner = flatten ? 1 : x.shape.count(axis + 1, x.shape.rank);
            for (std::int64_t o = 0; o < outer; ++o)
                for (std::int64_t i = 0; i < inner; ++i) {
                    const float* from = x.as<float>() + o * size * inner + i;
                    float* to = args.out().as<float>() + o * size * inner + i;
                    float largest = -std::numeric_limits<float>::infinity();
                    for (std::int64_t k = 0; k < size; ++k) largest = std::max(largest, from[k * inner]);
                    float sum = 0.0f;
                    for (std::int64_t k = 0; k < size; ++k) {
                        const float e = std::exp(from[k * inner] - largest);
                        to[k * inner] = e;
                        sum += e;
                    }
                    const float log_sum = std::log(sum);
                    for (std::int64_t k = 0; k < size; ++k)
                        to[k * inner] = logarithm ? from[k * inner] - largest - log_sum : to[k * inner] / sum;
                }
        };
        return kernel;
    };
    registry.add("Softmax", [make](const NodeInfo& node) { return make(node, false); });
    registry.add("LogSoftmax", [make](const NodeInfo& node) { return make(node, true); });
}

}  // namespace npuforge::cpu
