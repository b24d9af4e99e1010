// MatMul on the CPU partition: float32, leading dimensions broadcast, vectors as in numpy.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_gemm.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_matmul(Registry& registry) {
    registry.add("MatMul", [](const NodeInfo& node) {
        struct Plan {
            Shape a, b, batch, out;
            std::int64_t m = 1, k = 1, n = 1;
        };
        const auto plan = [=](const Args& args) {
            Plan p;
            const Shape &a = args.in(0).shape, &b = args.in(1).shape;
            node.check(a.rank >= 1 && b.rank >= 1, "scalars cannot be multiplied as matrices");
            p.m = a.rank == 1 ? 1 : a.dim[a.rank - 2];
            p.k = a.dim[a.rank - 1];
            p.n = b.rank == 1 ? 1 : b.dim[b.rank - 1];
            const std::int64_t k = b.rank == 1 ? b.dim[0] : b.dim[b.rank - 2];
            if (k != p.k) node.fail("shapes " + a.text() + " and " + b.text() + " do not multiply");
            for (int i = 0; i + 2 < a.rank; ++i) p.a.push(a.dim[i]);
            for (int i = 0; i + 2 < b.rank; ++i) p.b.push(b.dim[i]);
            p.batch = broadcast(node, p.a, p.b);
            p.out = p.batch;
            if (a.rank > 1) p.out.push(p.m);
            if (b.rank > 1) p.out.push(p.n);
            return p;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "two float32 inputs are needed");
            args.out().type = Type::kFloat32;
            args.out().shape = plan(args).out;
        };
        kernel.run = [=](const Args& args) {
            const Plan p = plan(args);
            std::int64_t sa[kMaxRank] = {}, sb[kMaxRank] = {};
            broadcast_strides(p.a, p.batch, sa);
            broadcast_strides(p.b, p.batch, sb);
            const std::int64_t batches = p.batch.count();
            for (std::int64_t batch = 0; batch < batches; ++batch) {
                std::int64_t rest = batch, at_a = 0, at_b = 0;
                for (int d = p.batch.rank - 1; d >= 0; --d) {
                    at_a += rest % p.batch.dim[d] * sa[d];
                    at_b += rest % p.batch.dim[d] * sb[d];
                    rest /= p.batch.dim[d];
                }
                float* out = args.out().as<float>() + batch * p.m * p.n;
                std::fill_n(out, p.m * p.n, 0.0f);
                multiply_add(args.in(0).as<float>() + at_a * p.m * p.k, p.k, args.in(1).as<float>() + at_b * p.k * p.n,
                             p.n, out, p.n, p.m, p.k, p.n);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
