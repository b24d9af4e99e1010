// Sliding windows of CPU operators over one to three spatial axes: convolutions and pools.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "npuforge/cpu.hpp"

namespace npuforge::cpu {

/// Sliding-window geometry of one spatial axis.
struct Window {
    std::int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;
    std::int64_t reach() const { return (kernel - 1) * dilation + 1; }
    /// Source position of tap `k` of window `position`; outside [0, in) on the border.
    std::int64_t at(std::int64_t position, std::int64_t k) const {
        return position * stride + k * dilation - pad_begin;
    }
    /// Taps [first, last) of window `position` that lie at or above `low` and below `high`.
    std::pair<std::int64_t, std::int64_t> taps(std::int64_t position, std::int64_t low, std::int64_t high) const {
        const std::int64_t start = at(position, 0);
        const std::int64_t first = start >= low ? 0 : (low - start + dilation - 1) / dilation;
        const std::int64_t last = start >= high ? 0 : std::min(kernel, (high - 1 - start) / dilation + 1);
        return {std::min(first, last), last};
    }
};

constexpr int kSpatial = 3;
/// Depth, height, width; axes that a tensor does not have are windows of one tap.
struct Windows {
    std::array<Window, kSpatial> axis;
    std::int64_t in() const { return axis[0].in * axis[1].in * axis[2].in; }
    std::int64_t out() const { return axis[0].out * axis[1].out * axis[2].out; }
    std::int64_t taps() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }
};

/// ONNX rules for `auto_pad`, `pads` and `ceil_mode`; sets pads and `out`.
inline void resolve_window(const NodeInfo& node, Window& w, const std::string& auto_pad, bool ceil_mode) {
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
        w.out = (w.in + w.stride - 1) / w.stride;
        const std::int64_t total = std::max<std::int64_t>(0, (w.out - 1) * w.stride + w.reach() - w.in);
        w.pad_begin = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
        w.pad_end = total - w.pad_begin;
        return;
    }
    if (auto_pad == "VALID") w.pad_begin = w.pad_end = 0;
    const std::int64_t span = w.in + w.pad_begin + w.pad_end - w.reach();
    node.check(span >= 0, "the window is larger than the padded input");
    w.out = (ceil_mode ? (span + w.stride - 1) / w.stride : span / w.stride) + 1;
    if (ceil_mode && (w.out - 1) * w.stride >= w.in + w.pad_begin)
        --w.out;  // a window must start inside the input or its left border
}

/// The window attributes of a node, read once.
class WindowRule {
  public:
    explicit WindowRule(const NodeInfo& node)
        : node_(node),
          auto_pad_(node.string("auto_pad", "NOTSET")),
          ceil_mode_(node.integer("ceil_mode", 0) != 0),
          kernel_(node.integers("kernel_shape", {})),
          strides_(node.integers("strides", {})),
          dilations_(node.integers("dilations", {})),
          pads_(node.integers("pads", {})) {}

    const std::string& auto_pad() const { return auto_pad_; }

    /// The axes of data `x` (N, C, spatial) before pads are resolved; kernel sizes from the weights (O, I, spatial) if
    /// given.
    Windows axes(const Shape& x, const Shape* weights = nullptr) const {
        const int spatial = x.rank - 2;
        if (spatial < 1 || spatial > kSpatial)
            node_.fail("one to three spatial dimensions are supported, found a tensor of shape " + x.text());
        const auto count = static_cast<std::size_t>(spatial);
        node_.check(weights ? weights->rank == x.rank : kernel_.size() == count,
                    "the window has another number of dimensions than the data");
        node_.check((strides_.empty() || strides_.size() == count) &&
                        (dilations_.empty() || dilations_.size() == count) &&
                        (pads_.empty() || pads_.size() == 2 * count),
                    "strides, dilations and pads need one value for every spatial dimension");
        Windows result;
        for (std::size_t i = 0; i < count; ++i) {
            Window& w = result.axis[kSpatial - count + i];
            w.in = x.dim[2 + i];
            w.kernel = weights ? weights->dim[2 + i] : kernel_[i];
            if (!strides_.empty()) w.stride = strides_[i];
            if (!dilations_.empty()) w.dilation = dilations_[i];
            if (!pads_.empty()) {
                w.pad_begin = pads_[i];
                w.pad_end = pads_[i + count];
            }
            constexpr std::int64_t kLimit = std::int64_t{1} << 30;  // keeps every product below in range
            node_.check(w.stride > 0 && w.dilation > 0 && w.kernel > 0,
                        "strides, dilations and kernel must be positive");
            const auto moderate = [](std::int64_t value) { return value > -kLimit && value < kLimit; };
            node_.check(moderate(w.stride) && moderate(w.dilation) && moderate(w.kernel) && moderate(w.pad_begin) &&
                            moderate(w.pad_end),
                        "strides, dilations, kernel and pads must be below 2^30");
        }
        return result;
    }

    /// Windows of a convolution or pool over `x`.
    Windows forward(const Shape& x, const Shape* weights = nullptr) const {
        Windows result = axes(x, weights);
        for (std::size_t i = kSpatial - static_cast<std::size_t>(x.rank - 2); i < kSpatial; ++i)
            resolve_window(node_, result.axis[i], auto_pad_, ceil_mode_);
        return result;
    }

    /// N, `channels`, and the number of windows on each spatial axis.
    static Shape result(const Shape& x, std::int64_t channels, const Windows& windows) {
        Shape out{x.dim[0], channels};
        for (int i = 0; i < x.rank - 2; ++i)
            out.push(windows.axis[static_cast<std::size_t>(kSpatial - (x.rank - 2) + i)].out);
        return out;
    }

  private:
    NodeInfo node_;
    std::string auto_pad_;
    bool ceil_mode_;
    std::vector<std::int64_t> kernel_, strides_, dilations_, pads_;
};

/// Calls f(source position, tap) for every tap of the window at (d, y, x) that lies inside the map.
template <typename F>
void each_tap(const Windows& w, std::int64_t d, std::int64_t y, std::int64_t x, F f) {
    const Window &depth = w.axis[0], &height = w.axis[1], &width = w.axis[2];
    const auto [d_first, d_last] = depth.taps(d, 0, depth.in);
    const auto [y_first, y_last] = height.taps(y, 0, height.in);
    const auto [x_first, x_last] = width.taps(x, 0, width.in);
    for (std::int64_t kd = d_first; kd < d_last; ++kd)
        for (std::int64_t ky = y_first; ky < y_last; ++ky) {
            const std::int64_t start = (depth.at(d, kd) * height.in + height.at(y, ky)) * width.in,
                               tap = (kd * height.kernel + ky) * width.kernel;
            for (std::int64_t kx = x_first; kx < x_last; ++kx) f(start + width.at(x, kx), tap + kx);
        }
}

/// The result of a global pool: one value per map.
inline void global_pool_shape(const NodeInfo& node, const Args& args) {
    node.check(args.has(0) && args.in(0).type == Type::kFloat32 && args.in(0).shape.rank >= 3,
               "a float32 map is needed");
    args.out().type = Type::kFloat32;
    args.out().shape = args.in(0).shape;
    for (int i = 2; i < args.in(0).shape.rank; ++i) args.out().shape.dim[i] = 1;
}

/// Calls f(d, y, x) for every window, in order.
template <typename F>
void each_window(const Windows& w, F f) {
    for (std::int64_t d = 0; d < w.axis[0].out; ++d)
        for (std::int64_t y = 0; y < w.axis[1].out; ++y)
            for (std::int64_t x = 0; x < w.axis[2].out; ++x) f(d, y, x);
}

}  // namespace npuforge::cpu
