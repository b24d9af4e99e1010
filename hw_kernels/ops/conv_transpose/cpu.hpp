// ConvTranspose on the CPU partition: 2-D, strides, dilations, groups, pads, output_padding, output_shape, auto_pad.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// out[window position] += weight * in for one tap of every input pixel; `v` and `u` describe the forward convolution
/// (in = result).
inline void scatter_tap(const float* in, float* out, float weight, const Window& v, const Window& u, std::int64_t ky,
                        std::int64_t kx) {
    const std::int64_t dx = kx * u.dilation - u.pad_begin;
    for (std::int64_t y = 0; y < v.out; ++y) {
        const std::int64_t row = y * v.stride + ky * v.dilation - v.pad_begin;
        if (row < 0 || row >= v.in) continue;
        for (std::int64_t x = 0; x < u.out; ++x) {
            const std::int64_t column = x * u.stride + dx;
            if (column >= 0 && column < u.in) out[row * u.in + column] += weight * in[y * u.out + x];
        }
    }
}

inline void register_conv_transpose(Registry& registry) {
    registry.add("ConvTranspose", [](const NodeInfo& node) {
        const std::int64_t group = node.integer("group", 1);
        const std::string auto_pad = node.string("auto_pad", "NOTSET");
        const std::vector<std::int64_t> strides = node.integers("strides", {1, 1}),
                                        dilations = node.integers("dilations", {1, 1}),
                                        pads = node.integers("pads", {0, 0, 0, 0}),
                                        extra = node.integers("output_padding", {0, 0}),
                                        wanted = node.integers("output_shape", {});
        node.check(strides.size() == 2 && dilations.size() == 2 && pads.size() == 4 && extra.size() == 2,
                   "only two spatial dimensions are supported");
        // The window of the convolution of which this is the transpose: `out` and `in` swapped.
        const auto window = [=](const Args& args, int axis) {
            const auto i = static_cast<std::size_t>(axis);
            Window w{0,
                     args.in(0).shape.dim[2 + axis],
                     args.in(1).shape.dim[2 + axis],
                     strides[i],
                     dilations[i],
                     pads[i],
                     pads[i + 2]};
            node.check(w.stride > 0 && w.dilation > 0 && w.kernel > 0,
                       "strides, dilations and kernel must be positive");
            const std::int64_t full = (w.out - 1) * w.stride + extra[i] + w.reach();
            const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
            if (same || !wanted.empty()) {
                w.in = wanted.empty() ? w.out * w.stride : wanted[wanted.size() - 2 + i];
                const std::int64_t total = std::max<std::int64_t>(0, full - w.in);
                w.pad_begin = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
                w.pad_end = total - w.pad_begin;
            } else {
                if (auto_pad == "VALID") w.pad_begin = w.pad_end = 0;
                w.in = full - w.pad_begin - w.pad_end;
            }
            node.check(w.in > 0, "the result is empty");
            return w;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "float32 data and weights are needed");
            const Shape &x = args.in(0).shape, &w = args.in(1).shape;
            if (x.rank != 4 || w.rank != 4 || group < 1 || x.dim[1] != w.dim[0] || w.dim[0] % group != 0)
                node.fail("data " + x.text() + " and weights " + w.text() + " do not fit " + std::to_string(group) +
                          " groups");
            node.check(!args.has(2) || args.in(2).shape.count() == w.dim[1] * group,
                       "bias needs one value per output channel");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{x.dim[0], w.dim[1] * group, window(args, 0).in, window(args, 1).in};
        };
        kernel.run = [=](const Args& args) {
            const Shape &x = args.in(0).shape, &w = args.in(1).shape, &y = args.out().shape;
            const Window v = window(args, 0), u = window(args, 1);
            const std::int64_t per_in = w.dim[0] / group, per_out = w.dim[1], in_map = x.dim[2] * x.dim[3],
                               out_map = y.dim[2] * y.dim[3];
            for (std::int64_t n = 0; n < y.dim[0]; ++n)
                for (std::int64_t o = 0; o < y.dim[1]; ++o) {
                    float* out = args.out().as<float>() + (n * y.dim[1] + o) * out_map;
                    std::fill_n(out, out_map, args.has(2) ? args.in(2).as<float>()[o] : 0.0f);
                    for (std::int64_t i = 0; i < per_in; ++i) {
                        const std::int64_t channel = o / per_out * per_in + i;
                        const float* in = args.in(0).as<float>() + (n * x.dim[1] + channel) * in_map;
                        const float* weight =
                            args.in(1).as<float>() + (channel * per_out + o % per_out) * v.kernel * u.kernel;
                        for (std::int64_t ky = 0; ky < v.kernel; ++ky)
                            for (std::int64_t kx = 0; kx < u.kernel; ++kx)
                                scatter_tap(in, out, weight[ky * u.kernel + kx], v, u, ky, kx);
                    }
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
