// Transpose on the CPU partition: any permutation, reversed axes when absent.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_transpose(Registry& registry) {
    registry.add("Transpose", [](const NodeInfo& node) {
        const std::vector<std::int64_t> attribute = node.integers("perm", {});
        // The axes from which the output's axes come.
        const auto permutation = [=](const Shape& in, int perm[kMaxRank]) {
            if (attribute.empty()) {
                for (int i = 0; i < in.rank; ++i) perm[i] = in.rank - 1 - i;
                return;
            }
            if (static_cast<int>(attribute.size()) != in.rank) node.fail("perm does not match the shape " + in.text());
            bool used[kMaxRank] = {};
            for (int i = 0; i < in.rank; ++i) {
                perm[i] = normal_axis(node, attribute[static_cast<std::size_t>(i)], in.rank);
                node.check(!used[perm[i]], "perm names an axis twice");
                used[perm[i]] = true;
            }
        };
        Kernel kernel;
        kernel.shape = [permutation](const Args& args) {
            const Shape in = args.in(0).shape;
            int perm[kMaxRank] = {};
            permutation(in, perm);
            args.out().type = args.in(0).type;
            args.out().shape.rank = in.rank;
            for (int i = 0; i < in.rank; ++i) args.out().shape.dim[i] = in.dim[perm[i]];
        };
        kernel.run = [permutation](const Args& args) {
            const Tensor& x = args.in(0);
            int perm[kMaxRank] = {};
            permutation(x.shape, perm);
            std::int64_t own[kMaxRank] = {}, strides[kMaxRank] = {};
            broadcast_strides(x.shape, x.shape, own);
            for (int i = 0; i < x.shape.rank; ++i) strides[i] = own[perm[i]];
            gather_strided(x.as<std::uint8_t>(), strides, args.out().shape, args.out().as<std::uint8_t>(),
                           type_bytes(x.type));
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
