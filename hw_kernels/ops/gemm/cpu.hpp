// Gemm on the CPU partition: y = alpha * A * B + beta * C, with transposed operands and a broadcast C.
#pragma once

#include "npuforge/cpu.hpp"
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
                node.check(broadcast(node, args.in(2).shape, args.out().shape) == args.out().shape,
                           "C does not broadcast to the result");
        };
        kernel.run = [=](const Args& args) {
            const Shape &a = args.in(0).shape, &b = args.in(1).shape, &y = args.out().shape;
            const float *pa = args.in(0).as<float>(), *pb = args.in(1).as<float>();
            float* out = args.out().as<float>();
            const std::int64_t depth = a.dim[trans_a ? 0 : 1];
            std::int64_t sc[kMaxRank] = {};
            if (args.has(2)) broadcast_strides(args.in(2).shape, y, sc);
            const std::int64_t step_am = trans_a ? 1 : a.dim[1], step_ak = trans_a ? a.dim[1] : 1;
            const std::int64_t step_bk = trans_b ? 1 : b.dim[1], step_bn = trans_b ? b.dim[1] : 1;
            for (std::int64_t m = 0; m < y.dim[0]; ++m)
                for (std::int64_t n = 0; n < y.dim[1]; ++n) {
                    float sum = 0.0f;
                    for (std::int64_t k = 0; k < depth; ++k)
                        sum += pa[m * step_am + k * step_ak] * pb[k * step_bk + n * step_bn];
                    sum *= alpha;
                    if (args.has(2)) sum += beta * args.in(2).as<float>()[m * sc[0] + n * sc[1]];
                    out[m * y.dim[1] + n] = sum;
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
