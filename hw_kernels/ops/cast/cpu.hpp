// Cast on the CPU partition between float32, int64, int32, bool, uint8 and int8; floats truncate, out-of-range values
// saturate.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_cast(Registry& registry) {
    registry.add("Cast", [](const NodeInfo& node) {
        // ONNX TensorProto.DataType
        static const std::map<std::int64_t, Type> kTypes = {{1, Type::kFloat32}, {2, Type::kUint8}, {3, Type::kInt8},
                                                            {6, Type::kInt32},   {7, Type::kInt64}, {9, Type::kBool}};
        const auto found = kTypes.find(node.integer("to"));
        if (found == kTypes.end())
            node.fail("cast to ONNX type " + std::to_string(node.integer("to")) + " is not supported");
        const Type target = found->second;
        Kernel kernel;
        kernel.shape = [target](const Args& args) {
            args.out().type = target;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = [target](const Args& args) {
            const Tensor& x = args.in(0);
            const std::int64_t count = x.shape.count();
            with_type(x.type, [&](auto from) {
                using From = decltype(from);
                const From* source = x.as<From>();
                with_type(target, [&](auto to) {
                    using To = decltype(to);
                    To* out = args.out().as<To>();
                    for (std::int64_t i = 0; i < count; ++i) {
                        if (target == Type::kBool) {
                            out[i] = static_cast<To>(source[i] != From{});
                        } else if constexpr (std::is_same_v<From, float> && !std::is_same_v<To, float>) {
                            const double low = static_cast<double>(std::numeric_limits<To>::min());
                            const double high = static_cast<double>(std::numeric_limits<To>::max());
                            const double value = static_cast<double>(source[i]);
                            out[i] = value != value  ? To{0}
                                     : value <= low  ? std::numeric_limits<To>::min()
                                     : value >= high ? std::numeric_limits<To>::max()
                                                     : static_cast<To>(value);
                        } else {
                            out[i] = static_cast<To>(source[i]);
                        }
                    }
                });
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
