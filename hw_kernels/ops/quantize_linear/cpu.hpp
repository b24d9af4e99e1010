// QuantizeLinear on the CPU partition: to int8 or uint8, halves to even.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_quantised.hpp"

namespace npuforge::cpu {

inline void register_quantize_linear(Registry& registry) {
    registry.add("QuantizeLinear", [](const NodeInfo& node) {
        const QuantisedLayout layout(node);
        const std::int64_t wanted = node.integer("output_dtype", 0);  // ONNX type: 2 uint8, 3 int8
        node.check(wanted == 0 || wanted == 2 || wanted == 3, "only int8 and uint8 results are supported");
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32, "float32 data are needed");
            const Type type = args.has(2) ? args.in(2).type : (wanted == 3 ? Type::kInt8 : Type::kUint8);
            node.check(type == Type::kInt8 || type == Type::kUint8, "only int8 and uint8 results are supported");
            layout.check(args);
            args.out().type = type;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = [=](const Args& args) {
            const float *x = args.in(0).as<float>(), *scale = args.in(1).as<float>();
            const auto convert = [&](auto zero) {
                using T = decltype(zero);
                layout.each_run(args, [&](std::int64_t first, std::int64_t count, std::int64_t which) {
                    const float offset = args.has(2) ? static_cast<float>(args.in(2).as<T>()[which]) : 0.0f;
                    for (std::int64_t i = first; i < first + count; ++i)
                        args.out().as<T>()[i] =
                            saturate<T>(static_cast<double>(std::nearbyint(x[i] / scale[which]) + offset));
                });
            };
            if (args.out().type == Type::kInt8)
                convert(std::int8_t{});
            else
                convert(std::uint8_t{});
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
