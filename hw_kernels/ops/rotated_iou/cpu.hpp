// RotatedIou on the CPU partition: intersection over union of every pair of rotated boxes.
#pragma once

#include "hw_kernels/ops/rotated_iou/parallel.hpp"
#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/rotated.hpp"

namespace npuforge::cpu {

inline void register_rotated_iou(Registry& registry) {
    registry.add("npuforge::RotatedIou", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            for (std::size_t i = 0; i < 2; ++i)
                node.check(args.has(i) && args.in(i).type == Type::kFloat32 && args.in(i).shape.rank == 2 &&
                               args.in(i).shape.dim[1] == 5,
                           "two float32 lists of boxes Nx5 are needed");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{args.in(0).shape.dim[0], args.in(1).shape.dim[0]};
        };
        kernel.run = [](const Args& args) {
            const float *a = args.in(0).as<float>(), *b = args.in(1).as<float>();
            const Shape& s = args.out().shape;
            parallel::OnHost{}(s.count(), parallel::RotatedIouBody{a, b, args.out().as<float>(), s.dim[1]});
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
