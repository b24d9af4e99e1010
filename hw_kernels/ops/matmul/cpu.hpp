// MatMul on the CPU partition: float32, int32 or int64, leading dimensions broadcast, vectors as in numpy.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_gemm.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// out[m, n] = a[m, k] b[k, n] modulo 2^bits, as numpy and ONNX Runtime have it.
template <typename T>
void multiply_integers(const T* a, const T* b, T* out, std::int64_t m, std::int64_t k, std::int64_t n) {
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            T sum{};
            for (std::int64_t l = 0; l < k; ++l) {
                const T product = wrapped(a[i * k + l], b[l * n + j], [](auto p, auto q) { return p * q; });
                sum = wrapped(sum, product, [](auto p, auto q) { return p + q; });
            }
            out[i * n + j] = sum;
        }
}

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
            node.check(args.has(0) && args.has(1) && args.in(0).type == args.in(1).type,
                       "two inputs of the same type are needed");
            const Type type = args.in(0).type;
            node.check(type == Type::kFloat32 || type == Type::kInt32 || type == Type::kInt64,
                       "the inputs must be float32, int32 or int64");
            args.out().type = type;
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
                if (args.in(0).type != Type::kFloat32) {
                    with_type(args.in(0).type, [&](auto zero) {
                        using T = decltype(zero);
                        multiply_integers(args.in(0).as<T>() + at_a * p.m * p.k, args.in(1).as<T>() + at_b * p.k * p.n,
                                          args.out().as<T>() + batch * p.m * p.n, p.m, p.k, p.n);
                    });
                    continue;
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
