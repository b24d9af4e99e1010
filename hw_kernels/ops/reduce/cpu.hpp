// The Reduce operators on the CPU partition; axes as attribute or input. Floats are accumulated in double.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

/// What sums and products of T are accumulated in.
template <typename T>
using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;

/// Sum of f(x) over the elements.
template <typename T, typename F, typename G>
Accumulator<T> sum_elements(T, const F& walk, G f) {
    Accumulator<T> total = 0;
    walk([&](T value) {
        total = wrapped(total, static_cast<Accumulator<T>>(f(static_cast<Accumulator<T>>(value))),
                        [](auto p, auto q) { return p + q; });
    });
    return total;
}

/// Largest (or smallest) element; NaN is passed over; infinity or the type's limit where there is none.
template <typename T, typename F>
T extreme(T, const F& walk, bool largest) {
    using Limits = std::numeric_limits<T>;
    T best = largest ? (Limits::has_infinity ? -Limits::infinity() : Limits::lowest())
                     : (Limits::has_infinity ? Limits::infinity() : Limits::max());
    walk([&](T value) {
        if (largest ? value > best : value < best) best = value;
    });
    return best;
}

/// `reduce(zero of T, walk, count)` gives one result; `walk(f)` calls f with every element that goes into it.
template <typename F>
Kernel reduction(const NodeInfo& node, F reduce) {
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
        node.check(args.has(0), "an input is needed");
        bool flags[kMaxRank] = {};
        reduced(args, flags);
        Shape out;
        for (int i = 0; i < args.in(0).shape.rank; ++i)
            if (!flags[i])
                out.push(args.in(0).shape.dim[i]);
            else if (keep)
                out.push(1);
        args.out().type = args.in(0).type;
        args.out().shape = out;
    };
    kernel.run = [=](const Args& args) {
        bool flags[kMaxRank] = {};
        reduced(args, flags);
        const Tensor& x = args.in(0);
        // Axes that stay, then axes that go, each with its stride in x.
        Shape kept, gone;
        std::int64_t kept_stride[kMaxRank] = {}, gone_stride[kMaxRank] = {};
        for (int d = 0; d < x.shape.rank; ++d) {
            Shape& shape = flags[d] ? gone : kept;
            (flags[d] ? gone_stride : kept_stride)[shape.rank] = x.shape.count(d + 1, x.shape.rank);
            shape.push(x.shape.dim[d]);
        }
        const std::int64_t results = kept.count(), count = gone.count();
        const std::int64_t run_length = gone.rank ? gone.dim[gone.rank - 1] : 1,
                           run_stride = gone.rank ? gone_stride[gone.rank - 1] : 1,
                           runs = gone.count(0, std::max(0, gone.rank - 1));
        with_type(x.type, [&](auto zero) {
            using T = decltype(zero);
            for (std::int64_t i = 0; i < results; ++i) {
                std::int64_t rest = i, base = 0;
                for (int d = kept.rank - 1; d >= 0; --d) {
                    base += rest % kept.dim[d] * kept_stride[d];
                    rest /= kept.dim[d];
                }
                const auto walk = [&](auto f) {
                    for (std::int64_t run = 0; run < runs; ++run) {
                        std::int64_t left = run, at = base;
                        for (int d = gone.rank - 2; d >= 0; --d) {
                            at += left % gone.dim[d] * gone_stride[d];
                            left /= gone.dim[d];
                        }
                        const T* from = x.as<T>() + at;
                        for (std::int64_t k = 0; k < run_length; ++k) f(from[k * run_stride]);
                    }
                };
                args.out().as<T>()[i] = static_cast<T>(reduce(zero, walk, count));
            }
        });
    };
    return kernel;
}

inline void register_reduce(Registry& registry) {
    const auto add = [&registry](const char* op, auto reduce) {
        registry.add(op, [reduce](const NodeInfo& node) { return reduction(node, reduce); });
    };
    const auto itself = [](auto x) { return x; };
    const auto square = [](auto x) { return wrapped(x, x, [](auto p, auto q) { return p * q; }); };
    add("ReduceSum", [=](auto zero, const auto& walk, std::int64_t) { return sum_elements(zero, walk, itself); });
    add("ReduceMean", [=](auto zero, const auto& walk, std::int64_t count) {
        using A = Accumulator<decltype(zero)>;
        if (std::is_integral_v<A> && count == 0) return A{};
        return static_cast<A>(sum_elements(zero, walk, itself) / static_cast<A>(count));
    });
    add("ReduceL1", [=](auto zero, const auto& walk, std::int64_t) {
        return sum_elements(zero, walk, [](auto x) { return magnitude(x); });
    });
    add("ReduceSumSquare", [=](auto zero, const auto& walk, std::int64_t) { return sum_elements(zero, walk, square); });
    add("ReduceL2", [=](auto zero, const auto& walk, std::int64_t) {
        return saturate<decltype(zero)>(std::sqrt(static_cast<double>(sum_elements(zero, walk, square))));
    });
    add("ReduceLogSum", [=](auto zero, const auto& walk, std::int64_t) {
        return saturate<decltype(zero)>(std::log(static_cast<double>(sum_elements(zero, walk, itself))));
    });
    add("ReduceLogSumExp", [](auto zero, const auto& walk, std::int64_t) {
        const auto largest = static_cast<double>(extreme(zero, walk, true));
        if (std::isinf(largest)) return saturate<decltype(zero)>(largest);
        double sum = 0.0;
        walk([&](auto x) { sum += std::exp(static_cast<double>(x) - largest); });
        return saturate<decltype(zero)>(largest + std::log(sum));
    });
    add("ReduceProd", [](auto zero, const auto& walk, std::int64_t) {
        Accumulator<decltype(zero)> product = 1;
        walk([&](auto x) {
            product = wrapped(product, static_cast<decltype(product)>(x), [](auto p, auto q) { return p * q; });
        });
        return product;
    });
    add("ReduceMax", [](auto zero, const auto& walk, std::int64_t) { return extreme(zero, walk, true); });
    add("ReduceMin", [](auto zero, const auto& walk, std::int64_t) { return extreme(zero, walk, false); });
}

}  // namespace npuforge::cpu
