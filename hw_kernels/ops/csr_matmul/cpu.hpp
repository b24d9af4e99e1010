// CsrMatMul on the CPU partition: a sparse matrix in compressed rows times a dense one.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_csr_matmul(Registry& registry) {
    registry.add("npuforge::CsrMatMul", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.has(1) && args.has(2) && args.has(3), "x, values, columns, pointers needed");
            node.check(args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32 &&
                           args.in(2).type == Type::kInt64 && args.in(3).type == Type::kInt64,
                       "x and values must be float32, columns and pointers int64");
            const Shape &x = args.in(0).shape, &values = args.in(1).shape, &pointers = args.in(3).shape;
            if (x.rank != 2 || values.rank != 1 || args.in(2).shape != values || pointers.rank != 1 ||
                pointers.dim[0] < 1)
                node.fail("x " + x.text() + ", values " + values.text() + ", columns " + args.in(2).shape.text() +
                          ", pointers " + pointers.text() + " expected as KxN, V, V, M+1");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{pointers.dim[0] - 1, x.dim[1]};
        };
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const std::int64_t rows = args.out().shape.dim[0], width = s.dim[1], count = args.in(1).shape.dim[0];
            const float *x = args.in(0).as<float>(), *values = args.in(1).as<float>();
            const std::int64_t *columns = args.in(2).as<std::int64_t>(), *pointers = args.in(3).as<std::int64_t>();
            node.check(pointers[0] == 0 && pointers[rows] == count, "row pointers must rise from 0 to the value count");
            float* y = args.out().as<float>();
            std::fill_n(y, rows * width, 0.0f);
            for (std::int64_t r = 0; r < rows; ++r, y += width) {
                node.check(pointers[r] <= pointers[r + 1] && pointers[r + 1] <= count, "row pointers must not fall");
                for (std::int64_t k = pointers[r]; k < pointers[r + 1]; ++k) {
                    node.check(columns[k] >= 0 && columns[k] < s.dim[0], "a column index is outside x");
                    const float* from = x + columns[k] * width;
                    for (std::int64_t i = 0; i < width; ++i) y[i] += values[k] * from[i];
                }
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
