// Resize and Upsample on the CPU partition: nearest and linear on the last two axes, every coordinate mode but
// tf_crop_and_resize.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// Two source positions along one axis and the weight of the second.
struct ResizePoint {
    std::int64_t first, second;
    float weight;
};

struct ResizeAxis {
    std::int64_t in = 1, out = 1;
    double scale = 1.0;

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
        return (x + 0.5f) / factor - 0.5f;
    }

    ResizePoint point(std::int64_t position, bool linear, const std::string& coordinates,
                      const std::string& rule) const {
        float x = source(position, coordinates);
        if (linear) {
            x = std::min(std::max(x, 0.0f), static_cast<float>(in - 1));
            const auto low = static_cast<std::int64_t>(x);
            return {low, std::min(low + 1, in - 1), x - static_cast<float>(low)};
        }
        float nearest = std::floor(x);
        if (rule == "ceil")
            nearest = std::ceil(x);
        else if (rule == "round_prefer_floor")
            nearest = std::ceil(x - 0.5f);
        else if (rule == "round_prefer_ceil")
            nearest = std::floor(x + 0.5f);
        const std::int64_t index = std::min(std::max<std::int64_t>(static_cast<std::int64_t>(nearest), 0), in - 1);
        return {index, index, 0.0f};
    }
};

inline void register_resize(Registry& registry) {
    const auto make = [](const NodeInfo& node) {
        const std::string mode = node.string("mode", "nearest"),
                          nearest = node.string("nearest_mode", "round_prefer_floor");
        const std::string coordinates =
            node.string("coordinate_transformation_mode", node.op() == "Upsample" ? "asymmetric" : "half_pixel");
        const std::string rule = node.op() == "Upsample" && !node.has("nearest_mode") ? "floor" : nearest;
        node.check(mode == "nearest" || mode == "linear", "mode expected nearest or linear");
        node.check(node.integer("antialias", 0) == 0, "antialias is not supported");
        static const char* const kKnown[] = {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
                                             "half_pixel_symmetric"};
        node.check(
            std::any_of(std::begin(kKnown), std::end(kKnown), [&](const char* known) { return coordinates == known; }),
            "coordinate_transformation_mode is not supported");
        const std::vector<std::int64_t> sizes_a = node.integers("sizes", {});
        const std::vector<float> scales_a = node.numbers("scales", {});
        // Scale and size of spatial axis 0 or 1: from attributes (the kit's Resize), else from ONNX inputs.
        const auto axis = [=](const Args& args, int i) {
            const Shape& x = args.in(0).shape;
            node.check(x.rank == 4, "a map of rank 4 is needed");
            ResizeAxis out;
            out.in = x.dim[2 + i];
            const std::size_t scales_at = node.op() == "Upsample" || node.input_count() == 2 ? 1 : 2;
            const auto pick = [i](std::size_t count) {
                return count == 2 ? static_cast<std::size_t>(i) : static_cast<std::size_t>(i) + 2;
            };
            if (!sizes_a.empty()) {
                out.out = sizes_a[pick(sizes_a.size())];
                out.scale = static_cast<double>(out.out) / static_cast<double>(out.in);
                if (!scales_a.empty()) out.set_scale(static_cast<double>(scales_a[pick(scales_a.size())]));
            } else if (args.has(3)) {
                const IntegerList sizes = read_integers(node, args, 3);
                node.check(sizes.size == 4, "sizes need four values");
                out.out = sizes.value[2 + i];
                out.scale = static_cast<double>(out.out) / static_cast<double>(out.in);
            } else {
                node.check(!scales_a.empty() || (args.has(scales_at) && args.in(scales_at).constant &&
                                                 args.in(scales_at).shape.count() == 4),
                           "constant scales or sizes are needed");
                const float scale =
                    scales_a.empty() ? args.in(scales_at).as<float>()[2 + i] : scales_a[pick(scales_a.size())];
                node.check(scale > 0.0f, "scales must be positive");
                out.out =
                    static_cast<std::int64_t>(std::floor(static_cast<double>(out.in) * static_cast<double>(scale)));
                out.scale = static_cast<double>(scale);
            }
            node.check(out.out > 0, "the result is empty");
            return out;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "input 0 must be float32");
            const Shape& x = args.in(0).shape;
            args.out().type = Type::kFloat32;
            args.out().shape = Shape{x.dim[0], x.dim[1], axis(args, 0).out, axis(args, 1).out};
        };
        kernel.scratch = [](const Args& args) {
            return static_cast<std::size_t>(args.out().shape.dim[2] + args.out().shape.dim[3]) * sizeof(ResizePoint);
        };
        kernel.run = [=](const Args& args) {
            const ResizeAxis v = axis(args, 0), u = axis(args, 1);
            auto* rows = reinterpret_cast<ResizePoint*>(args.scratch);
            ResizePoint* columns = rows + v.out;
            for (std::int64_t i = 0; i < v.out; ++i) rows[i] = v.point(i, mode == "linear", coordinates, rule);
            for (std::int64_t i = 0; i < u.out; ++i) columns[i] = u.point(i, mode == "linear", coordinates, rule);
            const Shape& x = args.in(0).shape;
            const float* in = args.in(0).as<float>();
            float* out = args.out().as<float>();
            for (std::int64_t map = 0; map < x.dim[0] * x.dim[1]; ++map, in += v.in * u.in)
                for (std::int64_t oy = 0; oy < v.out; ++oy) {
                    const float *first = in + rows[oy].first * u.in, *second = in + rows[oy].second * u.in;
                    const float wy = rows[oy].weight;
                    for (std::int64_t ox = 0; ox < u.out; ++ox) {
                        const ResizePoint& c = columns[ox];
                        if (mode == "nearest") {
                            *out++ = first[c.first];
                            continue;
                        }
                        const float upper = first[c.first] * (1.0f - c.weight) + first[c.second] * c.weight;
                        const float lower = second[c.first] * (1.0f - c.weight) + second[c.second] * c.weight;
                        *out++ = upper * (1.0f - wy) + lower * wy;
                    }
                }
        };
        return kernel;
    };
    registry.add("Resize", make);
    registry.add("Upsample", make);
}

}  // namespace npuforge::cpu
