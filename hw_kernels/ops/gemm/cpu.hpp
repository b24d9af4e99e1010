// Gemm on the CPU partition: y = alpha * A * B + beta * C, with transposed operands and a broadcast C.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_gemm.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_gemm(Registry& registry) {
    registry.add("Gemm", [](const NodeInfo& node) {
        const bool trans_a = node.integer("transA", 0) != 0, trans_b = node.integer("transB", 0) != 0;
        const float alpha = node.number("alpha", 1.0f), beta = node.number("beta", 1.0f);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "float32 inputs are needed");
            const Shape &a = args.in(0).shape, &b = args.in(1).shape;
            node.check(a.rank == 2 && b.rank == 2, "two matrices are needed");
            if (a.dim[trans_a ? 0 : 1] != b.dim[trans_b ? 1 : 0])
                node.fail("shapes " + a.text() + " and " + b.text() + " do not multiply");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{a.dim[trans_a ? 1 : 0], b.dim[trans_b ? 0 : 1]};
            if (args.has(2))
                node.check(args.in(2).type == Type::kFloat32 &&
                               broadcast(node, args.in(2).shape, args.out().shape) == args.out().shape,
                           "C must be float32 and broadcast to the result");
        };
        kernel.scratch = [=](const Args& args) {  // A the other way round
            return trans_a ? static_cast<std::size_t>(args.in(0).shape.count()) * sizeof(float) : std::size_t{0};
        };
        kernel.run = [=](const Args& args) {
            const Shape& y = args.out().shape;
            const std::int64_t rows = y.dim[0], columns = y.dim[1], depth = args.in(0).shape.dim[trans_a ? 0 : 1];
            const float *a = args.in(0).as<float>(), *b = args.in(1).as<float>();
            float* out = args.out().as<float>();
            if (trans_a) {
                auto* turned = reinterpret_cast<float*>(args.scratch);
                for (std::int64_t k = 0; k < depth; ++k)
                    for (std::int64_t m = 0; m < rows; ++m) turned[m * depth + k] = a[k * rows + m];
                a = turned;
            }
            if (trans_b) {  // rows of both lie in order of k
                for (std::int64_t m = 0; m < rows; ++m)
                    for (std::int64_t n = 0; n < columns; ++n)
                        out[m * columns + n] = dot(a + m * depth, b + n * depth, depth);
            } else {
                std::fill_n(out, rows * columns, 0.0f);
                multiply_add(a, depth, b, columns, out, columns, rows, depth, columns);
            }
            if (alpha != 1.0f)
                for (std::int64_t i = 0; i < rows * columns; ++i) out[i] *= alpha;
            if (args.has(2))
                broadcast_apply(out, y, args.in(2).as<float>(), args.in(2).shape, out, y,
                                [beta](float p, float q) { return p + beta * q; });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
