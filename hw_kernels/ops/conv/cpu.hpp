// Conv on the CPU partition: 2-D, any strides, dilations, groups and pads. Rows of the output are accumulated tap by
// tap.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// out += weight * in for one tap of every window that has it inside the map.
inline void add_tap(const float* in, float* out, float weight, const Window& v, const Window& u, std::int64_t ky,
                    std::int64_t kx) {
    const std::int64_t dx = kx * u.dilation - u.pad_begin;
    const std::int64_t first = dx >= 0 ? 0 : (-dx + u.stride - 1) / u.stride;
    const std::int64_t last = dx >= u.in ? 0 : std::min(u.out, (u.in - 1 - dx) / u.stride + 1);
    for (std::int64_t y = 0; y < v.out; ++y) {
        const std::int64_t row = y * v.stride + ky * v.dilation - v.pad_begin;
        if (row < 0 || row >= v.in) continue;
        const float* from = in + row * u.in + dx;
        float* to = out + y * u.out;
        if (u.stride == 1)
            for (std::int64_t i = first; i < last; ++i) to[i] += weight * from[i];
        else
            for (std::int64_t i = first; i < last; ++i) to[i] += weight * from[i * u.stride];
    }
}

inline void register_conv(Registry& registry) {
    registry.add("Conv", [](const NodeInfo& node) {
        const std::int64_t group = node.integer("group", 1);
        const std::string auto_pad = node.string("auto_pad", "NOTSET");
        const std::vector<std::int64_t> strides = node.integers("strides", {1, 1}),
                                        dilations = node.integers("dilations", {1, 1}),
                                        pads = node.integers("pads", {0, 0, 0, 0});
        node.check(strides.size() == 2 && dilations.size() == 2 && pads.size() == 4,
                   "only two spatial dimensions are supported");
        const auto window = [=](const Args& args, int axis) {
            const auto i = static_cast<std::size_t>(axis);
            Window w{args.in(0).shape.dim[2 + axis],
                     0,
                     args.in(1).shape.dim[2 + axis],
                     strides[i],
                     dilations[i],
                     pads[i],
                     pads[i + 2]};
            resolve_window(node, w, auto_pad, false);
            return w;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "float32 data and weights are needed");
            const Shape &x = args.in(0).shape, &w = args.in(1).shape;
            if (x.rank != 4 || w.rank != 4 || group < 1 || x.dim[1] != w.dim[1] * group || w.dim[0] % group != 0)
                node.fail("data " + x.text() + " and weights " + w.text() + " do not fit " + std::to_string(group) +
                          " groups");
            node.check(!args.has(2) || args.in(2).shape.count() == w.dim[0], "bias needs one value per output channel");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{x.dim[0], w.dim[0], window(args, 0).out, window(args, 1).out};
        };
        kernel.run = [=](const Args& args) {
            const Shape &x = args.in(0).shape, &w = args.in(1).shape, &y = args.out().shape;
            const Window v = window(args, 0), u = window(args, 1);
            const std::int64_t per_in = w.dim[1], per_out = w.dim[0] / group, in_map = x.dim[2] * x.dim[3],
                               out_map = y.dim[2] * y.dim[3];
            for (std::int64_t n = 0; n < y.dim[0]; ++n)
                for (std::int64_t o = 0; o < y.dim[1]; ++o) {
                    float* out = args.out().as<float>() + (n * y.dim[1] + o) * out_map;
                    std::fill_n(out, out_map, args.has(2) ? args.in(2).as<float>()[o] : 0.0f);
                    for (std::int64_t i = 0; i < per_in; ++i) {
                        const float* in = args.in(0).as<float>() + (n * x.dim[1] + o / per_out * per_in + i) * in_map;
                        const float* weight = args.in(1).as<float>() + (o * per_in + i) * v.kernel * u.kernel;
                        for (std::int64_t ky = 0; ky < v.kernel; ++ky)
                            for (std::int64_t kx = 0; kx < u.kernel; ++kx)
                                add_tap(in, out, weight[ky * u.kernel + kx], v, u, ky, kx);
                    }
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
