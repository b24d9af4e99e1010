// ConvTranspose on the CPU partition: one to three spatial axes, strides, dilations, groups, pads, output_padding,
// output_shape, auto_pad.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_window.hpp"

namespace npuforge::cpu {

inline void register_conv_transpose(Registry& registry) {
    registry.add("ConvTranspose", [](const NodeInfo& node) {
        const std::int64_t group = node.integer("group", 1);
        const WindowRule rule(node);
        const std::vector<std::int64_t> extra = node.integers("output_padding", {}),
                                        wanted = node.integers("output_shape", {});
        // The windows of the convolution of which this is the transpose: `in` is the result, `out` the data.
        const auto transposed = [=](const Args& args) {
            const Shape &x = args.in(0).shape, &weights = args.in(1).shape;
            Windows windows = rule.axes(x, &weights);
            const auto count = static_cast<std::size_t>(x.rank - 2);
            node.check((extra.empty() || extra.size() == count) && (wanted.empty() || wanted.size() >= count),
                       "output_padding and output_shape need one value for every spatial dimension");
            constexpr std::int64_t kLimit = std::int64_t{1} << 30;
            for (const auto* list : {&extra, &wanted})
                for (const std::int64_t value : *list)
                    node.check(value >= 0 && value < kLimit, "output_padding and output_shape must be below 2^30");
            for (std::size_t i = 0; i < count; ++i) {
                Window& w = windows.axis[kSpatial - count + i];
                w.out = w.in;
                const std::int64_t full = (w.out - 1) * w.stride + (extra.empty() ? 0 : extra[i]) + w.reach();
                if (!wanted.empty() || rule.auto_pad() == "SAME_UPPER" || rule.auto_pad() == "SAME_LOWER") {
                    w.in = wanted.empty() ? w.out * w.stride : wanted[wanted.size() - count + i];
                    const std::int64_t total = std::max<std::int64_t>(0, full - w.in);
                    w.pad_begin = rule.auto_pad() == "SAME_UPPER" ? total / 2 : total - total / 2;
                    w.pad_end = total - w.pad_begin;
                } else {
                    if (rule.auto_pad() == "VALID") w.pad_begin = w.pad_end = 0;
                    w.in = full - w.pad_begin - w.pad_end;
                }
                node.check(w.in > 0, "the result is empty");
            }
            return windows;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "float32 data and weights are needed");
            const Shape &x = args.in(0).shape, &w = args.in(1).shape;
            const Windows windows = transposed(args);
            if (group < 1 || group > w.dim[0] || x.dim[1] != w.dim[0] || w.dim[0] % group != 0)
                node.fail("data " + x.text() + " and weights " + w.text() + " do not fit " + std::to_string(group) +
                          " groups");
            node.check(
                !args.has(2) || (args.in(2).type == Type::kFloat32 && args.in(2).shape.count() == w.dim[1] * group),
                "bias needs one float32 per output channel");
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{x.dim[0], w.dim[1] * group};
            for (int i = 0; i < x.rank - 2; ++i)
                args.out().shape.push(windows.axis[static_cast<std::size_t>(kSpatial - (x.rank - 2) + i)].in);
        };
        kernel.run = [=](const Args& args) {
            const Shape &x = args.in(0).shape, &w = args.in(1).shape, &y = args.out().shape;
            const Windows windows = transposed(args);
            const std::int64_t per_in = w.dim[0] / group, per_out = w.dim[1], in_map = windows.out(),
                               out_map = windows.in(), taps = windows.taps();
            for (std::int64_t n = 0; n < y.dim[0]; ++n)
                for (std::int64_t o = 0; o < y.dim[1]; ++o) {
                    float* out = args.out().as<float>() + (n * y.dim[1] + o) * out_map;
                    std::fill_n(out, out_map, args.has(2) ? args.in(2).as<float>()[o] : 0.0f);
                    for (std::int64_t i = 0; i < per_in; ++i) {
                        const std::int64_t channel = o / per_out * per_in + i;
                        const float* in = args.in(0).as<float>() + (n * x.dim[1] + channel) * in_map;
                        const float* weight = args.in(1).as<float>() + (channel * per_out + o % per_out) * taps;
                        each_window(windows, [&](std::int64_t d, std::int64_t v, std::int64_t u) {
                            const float value = *in++;
                            each_tap(windows, d, v, u,
                                     [&](std::int64_t at, std::int64_t tap) { out[at] += weight[tap] * value; });
                        });
                    }
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
