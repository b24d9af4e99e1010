// AngleDecode on the CPU partition: atan2(s, c)/2 in [-pi/2, pi/2) of the halves along one axis.
#pragma once

#include "hw_kernels/ops/angle_decode/parallel.hpp"
#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_angle_decode(Registry& registry) {
    registry.add("npuforge::AngleDecode", [](const NodeInfo& node) {
        const std::int64_t attribute = node.integer("axis", 1);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "input 0 must be float32");
            const int axis = normal_axis(node, attribute, args.in(0).shape.rank);
            node.check(args.in(0).shape.dim[axis] % 2 == 0, "sines and cosines are needed: an even size along axis");
            args.out().type = Type::kFloat32;
            args.out().shape = args.in(0).shape;
            args.out().shape.dim[axis] /= 2;
        };
        kernel.run = [=](const Args& args) {
            const Shape& s = args.out().shape;
            const int axis = normal_axis(node, attribute, s.rank);
            parallel::OnHost{}(s.count(), parallel::AngleDecodeBody{args.in(0).as<float>(), args.out().as<float>(),
                                                                    s.count(axis, s.rank)});
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
