// MaxPool and GlobalMaxPool on the CPU partition; border taps do not take part.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_max_pool(Registry& registry) {
    registry.add("MaxPool", [](const NodeInfo& node) {
        const std::string auto_pad = node.string("auto_pad", "NOTSET");
        const bool ceil_mode = node.integer("ceil_mode", 0) != 0;
        const std::vector<std::int64_t> kernel_shape = node.integers("kernel_shape"),
                                        strides = node.integers("strides", {1, 1}),
                                        dilations = node.integers("dilations", {1, 1}),
                                        pads = node.integers("pads", {0, 0, 0, 0});
        node.check(kernel_shape.size() == 2 && strides.size() == 2 && dilations.size() == 2 && pads.size() == 4,
                   "only two spatial dimensions are supported");

        const auto window = [=](const Args& args, int axis) {
            const auto i = static_cast<std::size_t>(axis);
            Window w{
                args.in(0).shape.dim[2 + axis], 0, kernel_shape[i], strides[i], dilations[i], pads[i], pads[i + 2]};
            resolve_window(node, w, auto_pad, ceil_mode);
            return w;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32 && args.in(0).shape.rank == 4,
                       "a float32 map is needed");
            node.check(args.output_count == 1, "the second output (indices) is not supported");
            const Shape& x = args.in(0).shape;
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{x.dim[0], x.dim[1], window(args, 0).out, window(args, 1).out};
        };
        kernel.run = [=](const Args& args) {
            const Shape &x = args.in(0).shape, &y = args.out().shape;
            const Window v = window(args, 0), u = window(args, 1);
            const float* in = args.in(0).as<float>();
            float* out = args.out().as<float>();
            for (std::int64_t map = 0; map < x.dim[0] * x.dim[1]; ++map, in += v.in * u.in)
                for (std::int64_t oy = 0; oy < y.dim[2]; ++oy)
                    for (std::int64_t ox = 0; ox < y.dim[3]; ++ox) {
                        const std::int64_t top = oy * v.stride - v.pad_begin, left = ox * u.stride - u.pad_begin;
                        float result = -std::numeric_limits<float>::infinity();
                        for (std::int64_t ky = 0; ky < v.kernel; ++ky)
                            for (std::int64_t kx = 0; kx < u.kernel; ++kx) {
                                const std::int64_t row = top + ky * v.dilation, column = left + kx * u.dilation;
                                if (row < 0 || row >= v.in || column < 0 || column >= u.in) continue;
                                result = std::max(result, in[row * u.in + column]);
                            }
                        *out++ = result;
                    }
        };
        return kernel;
    });
    registry.add("GlobalMaxPool", [](const NodeInfo& node) {
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32 && args.in(0).shape.rank >= 3,
                       "a float32 map is needed");
            args.out().type = Type::kFloat32;
            args.out().shape = args.in(0).shape;
            for (int i = 2; i < args.in(0).shape.rank; ++i) args.out().shape.dim[i] = 1;
        };
        kernel.run = [](const Args& args) {
            const Shape& x = args.in(0).shape;
            const std::int64_t map = x.count(2, x.rank), maps = x.count(0, 2);
            const float* in = args.in(0).as<float>();
            for (std::int64_t i = 0; i < maps; ++i, in += map) {
                float result = -std::numeric_limits<float>::infinity();
                for (std::int64_t j = 0; j < map; ++j) result = std::max(result, in[j]);
                args.out().as<float>()[i] = result;
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
