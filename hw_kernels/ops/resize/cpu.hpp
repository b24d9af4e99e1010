// Resize and Upsample on the CPU partition: nearest, linear and cubic along any axes, every coordinate mode, antialias,
// exclude_outside, aspect ratio policies. Interpolation is separable: one pass per resized axis.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

struct ResizeAxis {
    std::int64_t in = 1, out = 1;
    double scale = 1.0;
    float roi_start = 0.0f, roi_end = 1.0f;

    /// A scale that is the quotient of the sizes rounded to float is taken as the exact quotient.
    void set_scale(double given) {
        if (std::fabs(given * static_cast<double>(in) - static_cast<double>(out)) > 1e-4 * static_cast<double>(out))
            scale = given;
    }

    /// In float32, as ONNX Runtime: positions that fall on a border between two pixels must fall there here as well.
    float source(std::int64_t position, const std::string& mode) const {
        const auto x = static_cast<float>(position), size = static_cast<float>(in), length = static_cast<float>(out);
        const auto factor = static_cast<float>(scale);
        if (mode == "asymmetric") return x / factor;
        if (mode == "align_corners") return out > 1 ? x * (size - 1.0f) / (length - 1.0f) : 0.0f;
        if (mode == "pytorch_half_pixel" && out == 1) return 0.0f;
        if (mode == "half_pixel_symmetric")
            return size / 2.0f * (1.0f - length / (factor * size)) + (x + 0.5f) / factor - 0.5f;
        if (mode == "tf_crop_and_resize")
            return out > 1 ? roi_start * (size - 1.0f) + x * (roi_end - roi_start) * (size - 1.0f) / (length - 1.0f)
                           : 0.5f * (roi_start + roi_end) * (size - 1.0f);
        if (mode == "tf_half_pixel_for_nn") return (x + 0.5f) / factor;
        return (x + 0.5f) / factor - 0.5f;
    }
};

/// What one output position along an axis reads: `taps` neighbours from `first` on (clamped to the axis) and weights.
struct ResizePoint {
    std::int64_t first = 0;
    bool outside = false;  ///< tf_crop_and_resize: the extrapolation value stands here
};

class ResizeRule {
  public:
    explicit ResizeRule(const NodeInfo& node) : node_(node), upsample_(node.op() == "Upsample") {
        mode_ = node.string("mode", "nearest");
        coordinates_ = node.string("coordinate_transformation_mode", upsample_ ? "asymmetric" : "half_pixel");
        nearest_ = node.string("nearest_mode", upsample_ ? "floor" : "round_prefer_floor");
        policy_ = node.string("keep_aspect_ratio_policy", "stretch");
        antialias_ = node.integer("antialias", 0) != 0;
        exclude_ = node.integer("exclude_outside", 0) != 0;
        cubic_a_ = static_cast<double>(node.number("cubic_coeff_a", -0.75f));
        extrapolation_ = node.number("extrapolation_value", 0.0f);
        sizes_ = node.integers("sizes", {});
        scales_ = node.numbers("scales", {});
        axes_ = node.integers("axes", {});
        node.check(mode_ == "nearest" || mode_ == "linear" || mode_ == "cubic",
                   "mode expected nearest, linear or cubic");
        static const char* const kKnown[] = {"half_pixel",          "pytorch_half_pixel",   "align_corners",
                                             "asymmetric",          "half_pixel_symmetric", "tf_crop_and_resize",
                                             "tf_half_pixel_for_nn"};
        node.check(
            std::any_of(std::begin(kKnown), std::end(kKnown), [&](const char* known) { return coordinates_ == known; }),
            "coordinate_transformation_mode is not supported");
    }

    float extrapolation() const { return extrapolation_; }
    /// Whether every element of the result is one of the input (or the extrapolation value): any element type will do.
    bool copies() const { return mode_ == "nearest"; }

    /// Sizes and scales of every axis; from attributes (the kit's Resize, of the last axes), else from ONNX inputs.
    void resolve(const Args& args, ResizeAxis axes[kMaxRank]) const {
        const Shape& x = args.in(0).shape;
        for (int i = 0; i < x.rank; ++i) axes[i].in = axes[i].out = x.dim[i];
        const std::size_t scales_at = upsample_ || node_.input_count() == 2 ? 1 : 2;
        float scales[kMaxRank];
        int listed[kMaxRank], count = 0;
        const auto list = [&](std::size_t length, bool from_attribute) {
            count = static_cast<int>(length);
            node_.check(axes_.empty() ? count == x.rank || (from_attribute && count <= x.rank)
                                      : count == static_cast<int>(axes_.size()),
                        "scales or sizes need one value for every resized axis");
            for (int i = 0; i < count; ++i)
                listed[i] =
                    axes_.empty() ? x.rank - count + i : normal_axis(node_, axes_[static_cast<std::size_t>(i)], x.rank);
        };
        if (!sizes_.empty()) {
            list(sizes_.size(), true);
            for (int i = 0; i < count; ++i) set_size(axes[listed[i]], sizes_[static_cast<std::size_t>(i)]);
            for (int i = 0; i < count && scales_.size() == sizes_.size(); ++i)
                axes[listed[i]].set_scale(static_cast<double>(scales_[static_cast<std::size_t>(i)]));
        } else if (args.has(3)) {
            const IntegerList sizes = read_integers(node_, args, 3);
            list(static_cast<std::size_t>(sizes.size), false);
            set_sizes(axes, listed, sizes.value, count);
        } else {
            if (scales_.empty()) {
                node_.check(args.has(scales_at) && args.in(scales_at).constant &&
                                args.in(scales_at).type == Type::kFloat32 &&
                                args.in(scales_at).shape.count() <= kMaxRank,
                            "constant scales or sizes are needed");
                list(static_cast<std::size_t>(args.in(scales_at).shape.count()), false);
                for (int i = 0; i < count; ++i) scales[i] = args.in(scales_at).as<float>()[i];
            } else {
                list(scales_.size(), true);
                for (int i = 0; i < count; ++i) scales[i] = scales_[static_cast<std::size_t>(i)];
            }
            for (int i = 0; i < count; ++i) {
                ResizeAxis& axis = axes[listed[i]];
                node_.check(scales[i] > 1e-6f && scales[i] < 1e6f, "scales must be positive and moderate");
                axis.out = static_cast<std::int64_t>(
                    std::floor(static_cast<double>(axis.in) * static_cast<double>(scales[i])));
                axis.scale = static_cast<double>(scales[i]);
            }
        }
        if (coordinates_ == "tf_crop_and_resize") {
            node_.check(args.has(1) && args.in(1).constant && args.in(1).type == Type::kFloat32 &&
                            args.in(1).shape.count() == 2 * count,
                        "tf_crop_and_resize needs a constant region of interest");
            for (int i = 0; i < count; ++i) {
                axes[listed[i]].roi_start = args.in(1).as<float>()[i];
                axes[listed[i]].roi_end = args.in(1).as<float>()[i + count];
            }
        }
        for (int i = 0; i < x.rank; ++i) node_.check(axes[i].out >= 0 && axes[i].in > 0, "the input is empty");
    }

    /// True where every output position is the input position.
    bool identity(const ResizeAxis& axis) const {
        return axis.in == axis.out && axis.scale == 1.0 && axis.roi_start == 0.0f && axis.roi_end == 1.0f;
    }

    std::int64_t taps(const ResizeAxis& axis) const {
        if (mode_ == "nearest") return 1;
        const std::int64_t half = mode_ == "linear" ? 1 : 2;
        if (!antialias_ || axis.scale >= 1.0) return 2 * half;
        return 2 * static_cast<std::int64_t>(std::ceil(static_cast<double>(half) / axis.scale));
    }

    /// Fills the point and its `taps(axis)` weights of one output position.
    ResizePoint point(const ResizeAxis& axis, std::int64_t position, float* weights) const {
        ResizePoint result;
        float x = axis.source(position, coordinates_);
        constexpr float kFar = 1e9f;  // far outside, and an integer all the same
        x = x != x ? -kFar : std::min(std::max(x, -kFar), kFar);
        result.outside = coordinates_ == "tf_crop_and_resize" && (x < 0.0f || x > static_cast<float>(axis.in - 1));
        if (mode_ == "nearest") {
            float nearest = std::floor(x);
            if (nearest_ == "ceil")
                nearest = std::ceil(x);
            else if (nearest_ == "round_prefer_floor")
                nearest = std::ceil(x - 0.5f);
            else if (nearest_ == "round_prefer_ceil")
                nearest = std::floor(x + 0.5f);
            result.first = static_cast<std::int64_t>(nearest);
            weights[0] = 1.0f;
            return result;
        }
        const std::int64_t count = taps(axis);
        if (mode_ == "linear" && count == 2) {
            x = std::min(std::max(x, 0.0f), static_cast<float>(axis.in - 1));
            result.first = static_cast<std::int64_t>(x);
            weights[1] = x - static_cast<float>(result.first);
            weights[0] = 1.0f - weights[1];
            return result;
        }
        const double left = std::ceil(static_cast<double>(x)) - 1.0, ratio = static_cast<double>(x) - left;
        result.first = static_cast<std::int64_t>(left) - count / 2 + 1;
        const double shrink = antialias_ ? std::min(axis.scale, 1.0) : 1.0;
        double sum = 0.0;
        for (int pass = 0; pass < 2; ++pass)
            for (std::int64_t t = 0; t < count; ++t) {
                double weight = kernel(shrink * std::fabs(static_cast<double>(t - count / 2 + 1) - ratio));
                const std::int64_t at = result.first + t;
                if (exclude_ && (at < 0 || at >= axis.in)) weight = 0.0;
                if (pass == 0)
                    sum += weight;
                else
                    weights[t] = static_cast<float>(weight / sum);
            }
        return result;
    }

  private:
    static void set_size(ResizeAxis& axis, std::int64_t size) {
        axis.out = size;
        axis.scale = static_cast<double>(size) / static_cast<double>(axis.in);
    }

    void set_sizes(ResizeAxis axes[kMaxRank], const int* listed, const std::int64_t* sizes, int count) const {
        if (policy_ == "stretch") {
            for (int i = 0; i < count; ++i) set_size(axes[listed[i]], sizes[i]);
            return;
        }
        double scale = 0.0;
        for (int i = 0; i < count; ++i) {
            const double own = static_cast<double>(sizes[i]) / static_cast<double>(axes[listed[i]].in);
            scale = i == 0 ? own : (policy_ == "not_larger" ? std::min(scale, own) : std::max(scale, own));
        }
        for (int i = 0; i < count; ++i) {
            axes[listed[i]].out =
                static_cast<std::int64_t>(std::floor(scale * static_cast<double>(axes[listed[i]].in) + 0.5));
            axes[listed[i]].scale = scale;
        }
    }

    /// Interpolation kernel at distance `x` >= 0: the hat, or Keys' cubic with parameter a.
    double kernel(double x) const {
        if (mode_ == "linear") return std::max(0.0, 1.0 - x);
        const double a = cubic_a_;
        if (x <= 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
        return x < 2.0 ? ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a : 0.0;
    }

    NodeInfo node_;
    bool upsample_, antialias_ = false, exclude_ = false;
    std::string mode_, coordinates_, nearest_, policy_;
    double cubic_a_ = -0.75;
    float extrapolation_ = 0.0f;
    std::vector<std::int64_t> sizes_, axes_;
    std::vector<float> scales_;
};

/// One pass: `to[outer, out, inner]` from `from[outer, in, inner]`. Integers are copied: one neighbour for each
/// position.
template <typename T>
void resize_pass(const ResizeRule& rule, const ResizeAxis& axis, const T* from, T* to, std::int64_t outer,
                 std::int64_t inner, ResizePoint* points, float* weights) {
    const std::int64_t taps = rule.taps(axis);
    for (std::int64_t i = 0; i < axis.out; ++i) points[i] = rule.point(axis, i, weights + i * taps);
    const auto clamp = [&](std::int64_t at) { return std::min(std::max<std::int64_t>(at, 0), axis.in - 1); };
    for (std::int64_t o = 0; o < outer; ++o, from += axis.in * inner)
        for (std::int64_t i = 0; i < axis.out; ++i, to += inner) {
            const float* weight = weights + i * taps;
            if (points[i].outside) {
                std::fill_n(to, inner, saturate<T>(static_cast<double>(rule.extrapolation())));
                continue;
            }
            const T* first = from + clamp(points[i].first) * inner;
            if (taps == 1) {
                std::copy_n(first, inner, to);
                continue;
            }
            if constexpr (std::is_same_v<T, float>) {
                const float* second = from + clamp(points[i].first + 1) * inner;
                for (std::int64_t j = 0; j < inner; ++j) to[j] = first[j] * weight[0] + second[j] * weight[1];
                for (std::int64_t t = 2; t < taps; ++t) {
                    const float* next = from + clamp(points[i].first + t) * inner;
                    for (std::int64_t j = 0; j < inner; ++j) to[j] += next[j] * weight[t];
                }
            }
        }
}

inline void register_resize(Registry& registry) {
    const auto make = [](const NodeInfo& node) {
        const ResizeRule rule(node);
        // Scratch: two intermediate tensors, then points and weights of one axis.
        struct Sizes {
            std::int64_t tensor = 0, points = 0, weights = 0;
        };
        const auto sizes = [rule](const Args& args) {
            ResizeAxis axes[kMaxRank];
            rule.resolve(args, axes);
            Sizes out;
            Shape shape = args.in(0).shape;
            for (int i = shape.rank - 1; i >= 0; --i) {
                if (rule.identity(axes[i])) continue;
                shape.dim[i] = axes[i].out;
                out.tensor = std::max(out.tensor, shape.count());
                out.points = std::max(out.points, axes[i].out);
                out.weights = std::max(out.weights, axes[i].out * rule.taps(axes[i]));
            }
            return out;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && (args.in(0).type == Type::kFloat32 || rule.copies()),
                       "input 0 must be float32, or the mode nearest");
            ResizeAxis axes[kMaxRank];
            rule.resolve(args, axes);
            args.out().type = args.in(0).type;
            args.out().shape = args.in(0).shape;
            for (int i = 0; i < args.in(0).shape.rank; ++i) args.out().shape.dim[i] = axes[i].out;
        };
        kernel.scratch = [=](const Args& args) {
            const Sizes s = sizes(args);
            return static_cast<std::size_t>(s.points) * sizeof(ResizePoint) +
                   static_cast<std::size_t>(2 * s.tensor) * std::max(type_bytes(args.in(0).type), sizeof(float)) +
                   static_cast<std::size_t>(s.weights) * sizeof(float);
        };
        kernel.run = [=](const Args& args) {
            ResizeAxis axes[kMaxRank];
            rule.resolve(args, axes);
            const Sizes s = sizes(args);
            Shape shape = args.in(0).shape;
            int left = 0;
            for (int i = 0; i < shape.rank; ++i) left += !rule.identity(axes[i]);
            with_type(args.in(0).type, [&](auto zero) {
                using T = decltype(zero);
                auto* points = reinterpret_cast<ResizePoint*>(args.scratch);
                auto* first = reinterpret_cast<T*>(points + s.points);  // the tensors first: their elements are widest
                T* buffers[2] = {first, first + s.tensor};
                auto* weights = reinterpret_cast<float*>(
                    args.scratch + static_cast<std::size_t>(s.points) * sizeof(ResizePoint) +
                    static_cast<std::size_t>(2 * s.tensor) * std::max(sizeof(T), sizeof(float)));
                const T* from = args.in(0).as<T>();
                if (left == 0) std::copy_n(from, shape.count(), args.out().as<T>());
                for (int i = shape.rank - 1; i >= 0; --i) {
                    if (rule.identity(axes[i])) continue;
                    T* to = --left == 0 ? args.out().as<T>() : buffers[left % 2];
                    resize_pass(rule, axes[i], from, to, shape.count(0, i), shape.count(i + 1, shape.rank), points,
                                weights);
                    shape.dim[i] = axes[i].out;
                    from = to;
                }
            });
        };
        return kernel;
    };
    registry.add("Resize", make);
    registry.add("Upsample", make);
}

}  // namespace npuforge::cpu
