// DeformConv on the CPU partition: 2-D convolution whose taps are moved by an offset map and weighted by a mask.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_gemm.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_sample.hpp"
#include "npuforge/cpu_window.hpp"

namespace npuforge::cpu {

inline void register_deform_conv(Registry& registry) {
    registry.add("DeformConv", [](const NodeInfo& node) {
        constexpr std::int64_t kTile = 64;  // output positions sampled at a time
        const std::int64_t group = node.integer("group", 1), offset_group = node.integer("offset_group", 1);
        const WindowRule rule(node);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            for (std::size_t i = 0; i < args.input_count; ++i)
                node.check(args.has(i) ? args.in(i).type == Type::kFloat32 : i > 2,
                           "float32 data, weights and offsets are needed");
            node.check(args.input_count >= 3, "data, weights and offsets are needed");
            const Shape &x = args.in(0).shape, &w = args.in(1).shape, &offset = args.in(2).shape;
            node.check(x.rank == 4 && w.rank == 4 && offset.rank == 4, "feature maps are needed");
            const Windows windows = rule.forward(x, &w);
            const std::int64_t taps = windows.taps();
            if (group < 1 || offset_group < 1 || group > w.dim[0] || x.dim[1] != w.dim[1] * group ||
                w.dim[0] % group != 0 || offset_group > x.dim[1] || x.dim[1] % offset_group != 0)
                node.fail("data " + x.text() + " and weights " + w.text() + " do not fit the groups");
            const Shape out = WindowRule::result(x, w.dim[0], windows);
            node.check(offset == Shape({x.dim[0], 2 * offset_group * taps, out.dim[2], out.dim[3]}),
                       "offsets need two values for every tap and output pixel");
            node.check(!args.has(3) || args.in(3).shape.count() == w.dim[0], "bias needs one value per output channel");
            node.check(
                !args.has(4) || args.in(4).shape == Shape({x.dim[0], offset_group * taps, out.dim[2], out.dim[3]}),
                "the mask needs one value for every tap and output pixel");
            args.out().type = Type::kFloat32;
            args.out().shape = out;
        };
        kernel.scratch = [](const Args& args) {
            const Shape& w = args.in(1).shape;
            return static_cast<std::size_t>(w.count(1, 4) * kTile) * sizeof(float);
        };
        kernel.run = [=](const Args& args) {
            const Shape &x = args.in(0).shape, &w = args.in(1).shape, &y = args.out().shape;
            const Windows windows = rule.forward(x, &w);
            const Window &v = windows.axis[1], &u = windows.axis[2];
            const std::int64_t per_in = w.dim[1], per_out = w.dim[0] / group, taps = windows.taps(),
                               in_map = windows.in(), out_map = windows.out(), depth = per_in * taps;
            auto* tile = reinterpret_cast<float*>(args.scratch);
            for (std::int64_t n = 0; n < y.dim[0]; ++n)
                for (std::int64_t g = 0; g < group; ++g) {
                    float* out = args.out().as<float>() + (n * y.dim[1] + g * per_out) * out_map;
                    for (std::int64_t o = 0; o < per_out; ++o)
                        std::fill_n(out + o * out_map, out_map,
                                    args.has(3) ? args.in(3).as<float>()[g * per_out + o] : 0.0f);
                    for (std::int64_t start = 0; start < out_map; start += kTile) {
                        const std::int64_t count = std::min(kTile, out_map - start);
                        for (std::int64_t i = 0; i < depth; ++i) {
                            const std::int64_t channel = g * per_in + i / taps, tap = i % taps,
                                               part = (n * offset_group + channel / (x.dim[1] / offset_group)) * taps +
                                                      tap;
                            const float* map = args.in(0).as<float>() + (n * x.dim[1] + channel) * in_map;
                            const float* offset = args.in(2).as<float>() + 2 * part * out_map;
                            const float* mask = args.has(4) ? args.in(4).as<float>() + part * out_map : nullptr;
                            for (std::int64_t p = 0; p < count; ++p) {
                                const std::int64_t at = start + p;
                                const float row = static_cast<float>(v.at(at / u.out, tap / u.kernel)) + offset[at];
                                const float column =
                                    static_cast<float>(u.at(at % u.out, tap % u.kernel)) + offset[out_map + at];
                                const float value = sample_zero_border(row, column, v.in, u.in).of(map);
                                tile[i * kTile + p] = mask ? value * mask[at] : value;
                            }
                        }
                        multiply_add(args.in(1).as<float>() + g * per_out * depth, depth, tile, kTile, out + start,
                                     out_map, per_out, depth, count);
                    }
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
