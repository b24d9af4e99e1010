// TopK on the CPU partition: values and int64 indices along one axis, sorted; equal values in order of their index.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_top_k(Registry& registry) {
    registry.add("TopK", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", -1);
        const bool largest = node.integer("largest", 1) != 0, k_given = node.has("k");
        const std::int64_t k_a = node.integer("k", 0);
        const auto count = [=](const Args& args) {
            if (k_given) return k_a;
            const IntegerList list = read_integers(node, args, 1);
            node.check(list.present && list.size == 1, "k must be one constant integer");
            return list.value[0];
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0), "an input is needed");
            with_number(node, args.in(0).type, [](auto) {});
            Shape out = args.in(0).shape;
            const int axis = normal_axis(node, attribute, out.rank);
            const std::int64_t k = count(args);
            if (k < 0 || k > out.dim[axis])
                node.fail("k = " + std::to_string(k) + " is outside an axis of " + std::to_string(out.dim[axis]));
            out.dim[axis] = k;
            args.out(0).type = args.in(0).type;
            args.out(0).shape = out;
            if (args.output_count > 1) {
                args.out(1).type = Type::kInt64;
                args.out(1).shape = out;
            }
        };
        kernel.scratch = [=](const Args& args) {
            const Shape& in = args.in(0).shape;
            return static_cast<std::size_t>(in.dim[normal_axis(node, attribute, in.rank)]) * sizeof(std::int64_t);
        };
        kernel.run = [=](const Args& args) {
            const Tensor& x = args.in(0);
            const int axis = normal_axis(node, attribute, x.shape.rank);
            const std::int64_t outer = x.shape.count(0, axis), size = x.shape.dim[axis],
                               inner = x.shape.count(axis + 1, x.shape.rank);
            const std::int64_t k = args.out(0).shape.dim[axis];
            auto* order = reinterpret_cast<std::int64_t*>(args.scratch);
            with_type(x.type, [&](auto zero) {
                using T = decltype(zero);
                for (std::int64_t o = 0; o < outer; ++o)
                    for (std::int64_t i = 0; i < inner; ++i) {
                        const T* from = x.as<T>() + o * size * inner + i;
                        for (std::int64_t j = 0; j < size; ++j) order[j] = j;
                        std::partial_sort(order, order + k, order + size, [&](std::int64_t a, std::int64_t b) {
                            const T va = from[a * inner], vb = from[b * inner];
                            if (va < vb || vb < va) return largest ? va > vb : va < vb;
                            if ((va != va) != (vb != vb)) return vb != vb;  // NaN comes last
                            return a < b;
                        });
                        for (std::int64_t j = 0; j < k; ++j) {
                            const std::int64_t to = (o * k + j) * inner + i;
                            args.out(0).as<T>()[to] = from[order[j] * inner];
                            if (args.output_count > 1) args.out(1).as<std::int64_t>()[to] = order[j];
                        }
                    }
            });
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
