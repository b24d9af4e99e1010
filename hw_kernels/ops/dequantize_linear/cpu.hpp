// DequantizeLinear on the CPU partition: int8, uint8 or int32 to float32.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_quantised.hpp"

namespace npuforge::cpu {

inline void register_dequantize_linear(Registry& registry) {
    registry.add("DequantizeLinear", [](const NodeInfo& node) {
        const QuantisedLayout layout(node);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1), "data and scale are needed");
            const Type type = args.in(0).type;
            node.check(type == Type::kInt8 || type == Type::kUint8 || type == Type::kInt32,
                       "int8, uint8 or int32 data are needed");
            node.check(!args.has(2) || args.in(2).type == type, "the zero point must have the type of the data");
            layout.check(args);
            args.out().type = Type::kFloat32;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = [=](const Args& args) {
            const float* scale = args.in(1).as<float>();
            with_type(args.in(0).type, [&](auto zero) {
                using T = decltype(zero);
                const T* x = args.in(0).as<T>();
                layout.each_run(args, [&](std::int64_t first, std::int64_t count, std::int64_t which) {
                    const auto offset =
                        args.has(2) ? static_cast<std::int64_t>(args.in(2).as<T>()[which]) : std::int64_t{0};
                    for (std::int64_t i = first; i < first + count; ++i)
                        args.out().as<float>()[i] =
                            static_cast<float>(static_cast<std::int64_t>(x[i]) - offset) * scale[which];
                });
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
