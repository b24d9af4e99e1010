// BatchNormalization on the CPU partition: y = scale * (x - mean) / sqrt(variance + epsilon) + bias per channel. With
// training_mode = 1 mean and variance are the batch's, and outputs 1 and 2 are the running statistics.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// Mean and population variance of channel `c` over images and map, summed in double.
inline void channel_statistics(const float* x, const Shape& s, std::int64_t c, double& mean, double& variance) {
    const std::int64_t channels = s.dim[1], map = s.count(2, s.rank);
    const auto total = static_cast<double>(s.dim[0] * map);
    double sum = 0.0, squares = 0.0;
    for (std::int64_t n = 0; n < s.dim[0]; ++n)
        for (std::int64_t j = 0; j < map; ++j) sum += x[(n * channels + c) * map + j];
    mean = sum / total;
    for (std::int64_t n = 0; n < s.dim[0]; ++n)
        for (std::int64_t j = 0; j < map; ++j) {
            const double d = x[(n * channels + c) * map + j] - mean;
            squares += d * d;
        }
    variance = squares / total;
}

inline void register_batch_normalization(Registry& registry) {
    registry.add("BatchNormalization", [](const NodeInfo& node) {
        const float epsilon = node.number("epsilon", 1e-5f), momentum = node.number("momentum", 0.9f);
        const bool training = node.integer("training_mode", 0) != 0;
        Kernel kernel = unary(node, [](float x) { return x; });
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32 && args.in(0).shape.rank > 0,
                       "input 0 must be float32 with at least one dimension");
            const std::int64_t channels = args.in(0).shape.rank > 1 ? args.in(0).shape.dim[1] : 1;
            for (std::size_t i = 1; i < 5; ++i)
                node.check(args.has(i) && args.in(i).type == Type::kFloat32 && args.in(i).shape.count() == channels,
                           "scale, bias, mean and variance need one value per channel");
            node.check(!training || args.in(0).shape.rank > 1, "training needs a channel dimension");
            for (std::size_t i = 0; i < args.output_count; ++i) {
                args.out(i).type = Type::kFloat32;
                args.out(i).shape = i == 0 ? args.in(0).shape : Shape{channels};
            }
        };
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const std::int64_t channels = s.rank > 1 ? s.dim[1] : 1, map = s.rank > 1 ? s.count(2, s.rank) : s.count();
            const std::int64_t images = s.rank > 1 ? s.dim[0] : 1;
            const float *x = args.in(0).as<float>(), *given_mean = args.in(3).as<float>(),
                        *given_variance = args.in(4).as<float>();
            float* y = args.out().as<float>();
            for (std::int64_t c = 0; c < channels; ++c) {
                double mean = given_mean[c], variance = given_variance[c];
                if (training && s.count() > 0) {
                    channel_statistics(x, s, c, mean, variance);
                    const auto keep = static_cast<double>(momentum);
                    if (args.output_count > 1)
                        args.out(1).as<float>()[c] = static_cast<float>(keep * given_mean[c] + (1.0 - keep) * mean);
                    if (args.output_count > 2)
                        args.out(2).as<float>()[c] =
                            static_cast<float>(keep * given_variance[c] + (1.0 - keep) * variance);
                }
                const float factor = args.in(1).as<float>()[c] / std::sqrt(static_cast<float>(variance) + epsilon);
                const float addend = args.in(2).as<float>()[c] - static_cast<float>(mean) * factor;
                for (std::int64_t n = 0; n < images; ++n)
                    for (std::int64_t j = 0; j < map; ++j) {
                        const std::int64_t i = (n * channels + c) * map + j;
                        y[i] = x[i] * factor + addend;
                    }
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
