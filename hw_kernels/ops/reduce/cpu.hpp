// ReduceMean, ReduceSum, ReduceMax, ReduceMin, ReduceProd, ReduceL2 on the CPU partition; axes as attribute or input.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_reduce(Registry& registry) {
    using Step = float (*)(float, float);
    const auto make = [](const NodeInfo& node, float start, Step step, Step finish) {
        const std::vector<std::int64_t> attribute = node.integers("axes", {});
        const bool from_attribute = node.has("axes"), keep = node.integer("keepdims", 1) != 0;
        const bool empty_is_identity = node.integer("noop_with_empty_axes", 0) != 0;
        const auto reduced = [=](const Args& args, bool flags[kMaxRank]) {
            const IntegerList axes = from_attribute ? to_list(node, attribute) : read_integers(node, args, 1);
            const int rank = args.in(0).shape.rank;
            for (int i = 0; i < rank; ++i) flags[i] = axes.size == 0 && !empty_is_identity;
            for (int i = 0; i < axes.size; ++i) flags[normal_axis(node, axes.value[i], rank)] = true;
        };
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            node.check(args.has(0) && args.in(0).type == Type::kFloat32, "input 0 must be float32");
            bool flags[kMaxRank] = {};
            reduced(args, flags);
            Shape out;
            for (int i = 0; i < args.in(0).shape.rank; ++i)
                if (!flags[i])
                    out.push(args.in(0).shape.dim[i]);
                else if (keep)
                    out.push(1);
            args.out().type = Type::kFloat32;
            args.out().shape = out;
        };
        kernel.run = [=](const Args& args) {
            bool flags[kMaxRank] = {};
            reduced(args, flags);
            const Tensor& x = args.in(0);
            float* out = args.out().as<float>();
            const std::int64_t results = args.out().shape.count(), total = x.shape.count();
            std::int64_t strides[kMaxRank] = {}, index[kMaxRank] = {}, size = 1;
            for (int d = x.shape.rank - 1; d >= 0; --d)
                if (!flags[d]) {
                    strides[d] = size;
                    size *= x.shape.dim[d];
                }
            for (std::int64_t i = 0; i < results; ++i) out[i] = start;
            std::int64_t at = 0;
            for (std::int64_t i = 0; i < total; ++i) {
                out[at] = step(out[at], x.as<float>()[i]);
                for (int d = x.shape.rank - 1; d >= 0; --d) {
                    at += strides[d];
                    if (++index[d] < x.shape.dim[d]) break;
                    at -= strides[d] * x.shape.dim[d];
                    index[d] = 0;
                }
            }
            const float count = results ? static_cast<float>(total / results) : 1.0f;
            if (finish)
                for (std::int64_t i = 0; i < results; ++i) out[i] = finish(out[i], count);
        };
        return kernel;
    };
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const auto add = [&registry, make](const char* op, float start, Step step, Step finish) {
        registry.add(op, [=](const NodeInfo& node) { return make(node, start, step, finish); });
    };
    const Step sum = [](float a, float b) { return a + b; };
    add("ReduceSum", 0.0f, sum, nullptr);
    add("ReduceMean", 0.0f, sum, [](float a, float count) { return a / count; });
    add("ReduceMax", -kInfinity, [](float a, float b) { return std::max(a, b); }, nullptr);
    add("ReduceMin", kInfinity, [](float a, float b) { return std::min(a, b); }, nullptr);
    add("ReduceProd", 1.0f, [](float a, float b) { return a * b; }, nullptr);
    add("ReduceL2", 0.0f, [](float a, float b) { return a + b * b; }, [](float a, float) { return std::sqrt(a); });
}

}  // namespace npuforge::cpu
