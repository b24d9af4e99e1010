// ConstantOfShape on the CPU partition: one value everywhere (`value`: a number or a list of one).
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_constant_of_shape(Registry& registry) {
    registry.add("ConstantOfShape", [](const NodeInfo& node) {
        const std::vector<float> value = node.numbers("value", {0.0f});
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            const IntegerList list = read_integers(node, args, 0);
            node.check(list.present && value.size() == 1, "a constant shape and one value are needed");
            Shape shape;
            for (int i = 0; i < list.size; ++i) shape.push(list.value[i]);
            args.out().type = Type::kFloat32;
            args.out().shape = shape;
        };
        kernel.run = [value](const Args& args) {
            std::fill_n(args.out().as<float>(), args.out().shape.count(), value[0]);
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
