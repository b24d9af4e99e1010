// AngleEncode on the CPU partition: (sin 2a, cos 2a) along one axis.
#pragma once

#include "hw_kernels/ops/angle_encode/parallel.hpp"
#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_angle_encode(Registry& registry) {
    registry.add("npuforge::AngleEncode", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", 1);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "input 0 must be float32");
            args.out().type = Type::kFloat32;
            args.out().shape = args.in(0).shape;
            args.out().shape.dim[normal_axis(node, attribute, args.in(0).shape.rank)] *= 2;
        };
        kernel.run = [=](const Args& args) {
            const Shape& s = args.in(0).shape;
            const int axis = normal_axis(node, attribute, s.rank);
            parallel::OnHost{}(s.count(), parallel::AngleEncodeBody{args.in(0).as<float>(), args.out().as<float>(),
                                                                    s.count(axis, s.rank)});
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
