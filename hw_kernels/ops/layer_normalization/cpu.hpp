// LayerNormalization and RMSNormalization on the CPU partition, over all axes from `axis` on.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias; `centred` false leaves mean and bias out.
inline Kernel normalisation(const NodeInfo& node, bool centred) {
    const std::int64_t attribute = node.integer("axis", -1);
    const float epsilon = node.number("epsilon", 1e-5f);
    Kernel kernel;
    kernel.shape = [=](const Args& args) {
        node.check(args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32,
                   "float32 data and scale are needed");
        const Shape& x = args.in(0).shape;
        const int axis = normal_axis(node, attribute, x.rank);
        for (std::size_t i = 1; i < args.input_count; ++i)
            node.check(!args.has(i) || (args.in(i).type == Type::kFloat32 && broadcast(node, args.in(i).shape, x) == x),
                       "scale and bias must be float32 and broadcast to the data");
        args.out(0).type = Type::kFloat32;
        args.out(0).shape = x;
        for (std::size_t i = 1; i < args.output_count; ++i) {  // mean and 1 / deviation, for training
            args.out(i).type = Type::kFloat32;
            args.out(i).shape = x;
            for (int d = axis; d < x.rank; ++d) args.out(i).shape.dim[d] = 1;
        }
    };
    kernel.run = [=](const Args& args) {
        const Shape& shape = args.in(0).shape;
        const int axis = normal_axis(node, attribute, shape.rank);
        const std::int64_t rows = shape.count(0, axis), size = shape.count(axis, shape.rank);
        const float* x = args.in(0).as<float>();
        float* y = args.out().as<float>();
        for (std::int64_t row = 0; row < rows; ++row, x += size, y += size) {
            double mean = 0.0, square = 0.0;
            for (std::int64_t i = 0; i < size && centred; ++i) mean += static_cast<double>(x[i]);
            mean /= static_cast<double>(size);
            for (std::int64_t i = 0; i < size; ++i) {
                const double away = static_cast<double>(x[i]) - (centred ? mean : 0.0);
                square += away * away;
            }
            const auto factor =
                static_cast<float>(1.0 / std::sqrt(square / static_cast<double>(size) + static_cast<double>(epsilon)));
            const auto centre = static_cast<float>(centred ? mean : 0.0);
            for (std::int64_t i = 0; i < size; ++i) y[i] = (x[i] - centre) * factor;
            if (args.output_count > 1) args.out(1).as<float>()[row] = centre;
            if (args.output_count > 2) args.out(2).as<float>()[row] = factor;
        }
        float* result = args.out().as<float>();
        broadcast_apply(result, shape, args.in(1).as<float>(), args.in(1).shape, result, shape,
                        [](float p, float q) { return p * q; });
        if (args.has(2))
            broadcast_apply(result, shape, args.in(2).as<float>(), args.in(2).shape, result, shape,
                            [](float p, float q) { return p + q; });
    };
    return kernel;
}

inline void register_layer_normalization(Registry& registry) {
    registry.add("LayerNormalization", [](const NodeInfo& node) { return normalisation(node, true); });
    registry.add("RMSNormalization", [](const NodeInfo& node) {
        node.check(node.input_count() <= 2, "two inputs are needed");
        return normalisation(node, false);
    });
}

}  // namespace npuforge::cpu
