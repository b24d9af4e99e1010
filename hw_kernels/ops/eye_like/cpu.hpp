// EyeLike on the CPU partition: ones on a diagonal, known from the input's shape alone.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_eye_like(Registry& registry) {
    registry.add("EyeLike", [](const NodeInfo& node) {
        static const std::map<std::int64_t, Type> kTypes = {{1, Type::kFloat32}, {2, Type::kUint8}, {3, Type::kInt8},
                                                            {6, Type::kInt32},   {7, Type::kInt64}, {9, Type::kBool}};
        const std::int64_t dtype = node.integer("dtype", 0), diagonal = node.integer("k", 0);
        if (dtype != 0 && !kTypes.count(dtype)) node.fail("ONNX type " + std::to_string(dtype) + " is not supported");
        Kernel kernel;
        kernel.shape_only = true;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).shape.rank == 2, "a matrix is needed");
            args.out().type = dtype ? kTypes.at(dtype) : args.in(0).type;
            args.out().shape = args.in(0).shape;
        };
        kernel.run = [diagonal](const Args& args) {
            const std::int64_t rows = args.out().shape.dim[0], columns = args.out().shape.dim[1];
            const std::int64_t k = std::min(std::max(diagonal, -rows), columns);
            with_type(args.out().type, [&](auto zero) {
                using T = decltype(zero);
                std::fill_n(args.out().as<T>(), rows * columns, T{});
                for (std::int64_t row = std::max<std::int64_t>(0, -k); row < rows && row + k < columns; ++row)
                    args.out().as<T>()[row * columns + row + k] = T{1};
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
