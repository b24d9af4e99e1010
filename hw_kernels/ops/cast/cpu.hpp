// Cast and CastLike on the CPU partition between float32, int64, int32, bool, uint8 and int8; floats truncate,
// out-of-range values saturate.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// The values of input 0 in the type of output 0.
inline void cast_values(const Args& args) {
    const Tensor& x = args.in(0);
    const std::int64_t count = x.shape.count();
    const Type target = args.out().type;
    with_type(x.type, [&](auto from) {
        using From = decltype(from);
        const From* source = x.as<From>();
        with_type(target, [&](auto to) {
            using To = decltype(to);
            To* out = args.out().as<To>();
            for (std::int64_t i = 0; i < count; ++i) {
                if (target == Type::kBool)
                    out[i] = static_cast<To>(source[i] != From{});
                else if constexpr (std::is_same_v<From, float>)
                    out[i] = saturate<To>(static_cast<double>(source[i]));
                else
                    out[i] = static_cast<To>(source[i]);
            }
        });
    });
}

inline void register_cast(Registry& registry) {
    registry.add("Cast", [](const NodeInfo& node) {
        // ONNX TensorProto.DataType
        static const std::map<std::int64_t, Type> kTypes = {{1, Type::kFloat32}, {2, Type::kUint8}, {3, Type::kInt8},
                                                            {6, Type::kInt32},   {7, Type::kInt64}, {9, Type::kBool}};
        const auto found = kTypes.find(node.integer("to"));
        if (found == kTypes.end())
            node.fail("cast to ONNX type " + std::to_string(node.integer("to")) + " is not supported");
        Kernel kernel;
        kernel.shape = [target = found->second](const Args& args) {
            args.out().type = target;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = cast_values;
        return kernel;
    });
    registry.add("CastLike", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [node](const Args& args) {
            node.check(args.has(0) && args.has(1), "two inputs are needed");
            args.out().type = args.in(1).type;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = cast_values;
        return kernel;
    });
}

}  // namespace npuforge::cpu
