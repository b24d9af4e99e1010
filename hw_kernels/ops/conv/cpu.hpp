// Conv on the CPU partition: one to three spatial axes, any strides, dilations, groups and pads. Columns of the windows
// are unrolled tile by tile and multiplied; with few output channels per group (depthwise) the rows of the output are
// accumulated tap by tap.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_gemm.hpp"
#include "npuforge/cpu_math.hpp"
#include "npuforge/cpu_window.hpp"

namespace npuforge::cpu {

/// [first, last) of the positions along `w` whose tap `k` lies inside the map.
inline std::pair<std::int64_t, std::int64_t> inside(const Window& w, std::int64_t k) {
    const std::int64_t shift = k * w.dilation - w.pad_begin;
    const std::int64_t first = shift >= 0 ? 0 : (-shift + w.stride - 1) / w.stride;
    const std::int64_t last = shift >= w.in ? 0 : std::min(w.out, (w.in - 1 - shift) / w.stride + 1);
    return {std::min(first, last), last};
}

/// out += weight * in for one tap of every window that has it inside the map.
inline void add_tap(const float* in, float* out, float weight, const Windows& w, std::int64_t kd, std::int64_t ky,
                    std::int64_t kx) {
    const Window &depth = w.axis[0], &height = w.axis[1], &width = w.axis[2];
    const auto [first, last] = inside(width, kx);
    if (first >= last) return;
    for (std::int64_t d = 0; d < depth.out; ++d) {
        const std::int64_t plane = depth.at(d, kd);
        if (plane < 0 || plane >= depth.in) continue;
        for (std::int64_t y = 0; y < height.out; ++y) {
            const std::int64_t row = height.at(y, ky);
            if (row < 0 || row >= height.in) continue;
            const float* from = in + (plane * height.in + row) * width.in + width.at(first, kx);
            float* to = out + (d * height.out + y) * width.out + first;
            const std::int64_t count = last - first;
            if (width.stride == 1)
                for (std::int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
            else
                for (std::int64_t i = 0; i < count; ++i) to[i] += weight * from[i * width.stride];
        }
    }
}

constexpr std::int64_t kConvTile = 256;  ///< output positions unrolled at a time
constexpr std::int64_t kConvFewOutputs = 4;

/// tile[tap, position] = the pixel under `tap` of the windows `start` … `start + count`, 0 on the border.
inline void unroll(const float* in, float* tile, const Windows& w, std::int64_t start, std::int64_t count) {
    const Window &depth = w.axis[0], &height = w.axis[1], &width = w.axis[2];
    std::fill_n(tile, w.taps() * kConvTile, 0.0f);
    for (std::int64_t done = 0; done < count;) {  // pieces of output rows
        const std::int64_t position = start + done, x = position % width.out, y = position / width.out % height.out,
                           d = position / width.out / height.out;
        const std::int64_t piece = std::min(width.out - x, count - done);
        float* row_of_tile = tile + done;
        for (std::int64_t kd = 0; kd < depth.kernel; ++kd)
            for (std::int64_t ky = 0; ky < height.kernel; ++ky) {
                const std::int64_t plane = depth.at(d, kd), row = height.at(y, ky);
                const bool empty = plane < 0 || plane >= depth.in || row < 0 || row >= height.in;
                for (std::int64_t kx = 0; kx < width.kernel; ++kx, row_of_tile += kConvTile) {
                    if (empty) continue;
                    const auto [own_first, own_last] = inside(width, kx);
                    const std::int64_t first = std::max(own_first, x), last = std::min(own_last, x + piece);
                    if (first >= last) continue;
                    const float* from = in + (plane * height.in + row) * width.in + width.at(first, kx);
                    float* to = row_of_tile + first - x;
                    if (width.stride == 1)
                        std::copy_n(from, last - first, to);
                    else
                        for (std::int64_t i = 0; i < last - first; ++i) to[i] = from[i * width.stride];
                }
            }
        done += piece;
    }
}

inline void register_conv(Registry& registry) {
    registry.add("Conv", [](const NodeInfo& node) {
        const std::int64_t group = node.integer("group", 1);
        const WindowRule rule(node);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(
                args.has(0) && args.has(1) && args.in(0).type == Type::kFloat32 && args.in(1).type == Type::kFloat32,
                "float32 data and weights are needed");
            const Shape &x = args.in(0).shape, &w = args.in(1).shape;
            const Windows windows = rule.forward(x, &w);
            if (group < 1 || group > w.dim[0] || x.dim[1] != w.dim[1] * group || w.dim[0] % group != 0)
                node.fail("data " + x.text() + " and weights " + w.text() + " do not fit " + std::to_string(group) +
                          " groups");
            node.check(!args.has(2) || (args.in(2).type == Type::kFloat32 && args.in(2).shape.count() == w.dim[0]),
                       "bias needs one float32 per output channel");
            args.out().type = Type::kFloat32;
            args.out().shape = WindowRule::result(x, w.dim[0], windows);
        };
        kernel.scratch = [=](const Args& args) {
            const Shape& w = args.in(1).shape;
            if (w.dim[0] / group < kConvFewOutputs) return std::size_t{0};
            return static_cast<std::size_t>(w.count(1, w.rank) * kConvTile) * sizeof(float);
        };
        kernel.run = [=](const Args& args) {
            const Shape &x = args.in(0).shape, &w = args.in(1).shape, &y = args.out().shape;
            const Windows windows = rule.forward(x, &w);
            const std::int64_t per_in = w.dim[1], per_out = w.dim[0] / group, in_map = windows.in(),
                               out_map = windows.out(), taps = windows.taps(), depth = per_in * taps;
            for (std::int64_t n = 0; n < y.dim[0]; ++n)
                for (std::int64_t g = 0; g < group; ++g) {
                    const float* in = args.in(0).as<float>() + (n * x.dim[1] + g * per_in) * in_map;
                    const float* weight = args.in(1).as<float>() + g * per_out * depth;
                    float* out = args.out().as<float>() + (n * y.dim[1] + g * per_out) * out_map;
                    for (std::int64_t o = 0; o < per_out; ++o)
                        std::fill_n(out + o * out_map, out_map,
                                    args.has(2) ? args.in(2).as<float>()[g * per_out + o] : 0.0f);
                    if (per_out < kConvFewOutputs) {
                        const Window &a = windows.axis[0], &b = windows.axis[1], &c = windows.axis[2];
                        for (std::int64_t o = 0; o < per_out; ++o)
                            for (std::int64_t i = 0; i < per_in; ++i)
                                for (std::int64_t t = 0; t < taps; ++t)
                                    add_tap(in + i * in_map, out + o * out_map, weight[(o * per_in + i) * taps + t],
                                            windows, t / c.kernel / b.kernel % a.kernel, t / c.kernel % b.kernel,
                                            t % c.kernel);
                        continue;
                    }
                    auto* tile = reinterpret_cast<float*>(args.scratch);
                    for (std::int64_t start = 0; start < out_map; start += kConvTile) {
                        const std::int64_t count = std::min(kConvTile, out_map - start);
                        for (std::int64_t i = 0; i < per_in; ++i)
                            unroll(in + i * in_map, tile + i * taps * kConvTile, windows, start, count);
                        multiply_add(weight, depth, tile, kConvTile, out + start, out_map, per_out, depth, count);
                    }
                }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
