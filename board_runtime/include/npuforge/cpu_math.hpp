// Scalar functions and loop templates shared by CPU operators: unary, binary and variadic with broadcasting, strided
// copies.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "npuforge/cpu.hpp"
#include "npuforge/parallel.hpp"

namespace npuforge::cpu {

inline float relu(float x) { return x > 0.0f ? x : (x != x ? x : 0.0f); }
inline float clip(float x, float low, float high) { return x < low ? low : (x > high ? high : x); }
inline float hard_sigmoid(float x, float alpha, float beta) { return clip(alpha * x + beta, 0.0f, 1.0f); }
inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }
inline float mish(float x) { return x * std::tanh(softplus(x)); }
inline float elu(float x, float alpha) { return x < 0.0f ? alpha * std::expm1(x) : x; }
/// SiLU by a polynomial of degree 5 on [-8, 8], 0 below, x above (hw_kernels/formulas.py).
inline float silu_polynomial(float x) {
    if (x < -8.0f) return 0.0f;
    if (x > 8.0f) return x;
    const float u = x * x;
    return 0.5f * x + 0.19444452023451986f + u * (0.11605960615209412f - u * 0.0009324674402457998f);
}
inline float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f)); }
inline float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + std::tanh(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}

/// A kernel y = f(x) on float32 of any shape.
template <typename F>
Kernel unary(const NodeInfo& node, F f) {
    Kernel kernel;
    kernel.shape = [node](const Args& args) {
        node.check(args.has(0) && args.in(0).type == Type::kFloat32, "input 0 must be float32");
        args.out().type = Type::kFloat32;
        args.out().shape = args.in(0).shape;
    };
    kernel.run = [f](const Args& args) {
        const float* x = args.in(0).as<float>();
        float* y = args.out().as<float>();
        const std::int64_t count = args.in(0).shape.count();
        for (std::int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
    };
    return kernel;
}

/// y = f(row, i, (x - mean) / sqrt(variance + epsilon)) for every row of `size` elements; sums in double.
template <typename F>
void normalise_rows(const float* x, float* y, std::int64_t rows, std::int64_t size, float epsilon, F f) {
    for (std::int64_t row = 0; row < rows; ++row, x += size, y += size) {
        double sum = 0.0, squares = 0.0;
        for (std::int64_t i = 0; i < size; ++i) sum += x[i];
        const double mean = sum / static_cast<double>(size);
        for (std::int64_t i = 0; i < size; ++i) squares += (x[i] - mean) * (x[i] - mean);
        const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(size) + epsilon);
        for (std::int64_t i = 0; i < size; ++i) y[i] = f(row, i, static_cast<float>((x[i] - mean) * inverse));
    }
}

/// Integer arithmetic modulo 2^n, as numpy and ONNX Runtime have it; floats as they are.
template <typename T, typename F>
T wrapped(T p, T q, F f) {
    if constexpr (std::is_integral_v<T>) {
        using U = std::make_unsigned_t<T>;
        return static_cast<T>(static_cast<U>(f(static_cast<std::uint64_t>(p), static_cast<std::uint64_t>(q))));
    } else {
        return f(p, q);
    }
}

/// |x|; the lowest integer stays, as it has no opposite.
template <typename T>
T magnitude(T x) {
    if constexpr (std::is_floating_point_v<T>) {
        return std::fabs(x);
    } else if constexpr (std::is_unsigned_v<T>) {
        return x;
    } else {
        return x < 0 ? wrapped(T{}, x, [](auto p, auto q) { return p - q; }) : x;
    }
}

/// Truncation; NaN gives 0, what does not fit the nearest value that does. Floats as they are.
template <typename To>
To saturate(double value) {
    if constexpr (std::is_floating_point_v<To>) {
        return static_cast<To>(value);
    } else {
        if (value != value) return To{0};
        if (value <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
        if (value >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
        return static_cast<To>(value);
    }
}

/// Numpy broadcasting of two shapes; fails naming the node.
inline Shape broadcast(const NodeInfo& node, const Shape& a, const Shape& b) {
    Shape out;
    out.rank = std::max(a.rank, b.rank);
    for (int i = 0; i < out.rank; ++i) {
        const int ia = i - (out.rank - a.rank), ib = i - (out.rank - b.rank);
        const std::int64_t da = ia < 0 ? 1 : a.dim[ia], db = ib < 0 ? 1 : b.dim[ib];
        if (da != db && da != 1 && db != 1) node.fail("shapes " + a.text() + " and " + b.text() + " do not broadcast");
        out.dim[i] = da == 1 ? db : da;
    }
    return out;
}

/// Element strides of `shape` when broadcast to `out` (0 where repeated).
inline void broadcast_strides(const Shape& shape, const Shape& out, std::int64_t strides[kMaxRank]) {
    std::int64_t step = 1;
    for (int i = out.rank - 1; i >= 0; --i) {
        const int own = i - (out.rank - shape.rank);
        strides[i] = own < 0 || shape.dim[own] == 1 ? 0 : step;
        if (own >= 0) step *= shape.dim[own];
    }
}

/// out[i] = f(a, b) over the broadcast shape; the innermost dimension is a plain loop.
template <typename T, typename U, typename R, typename F>
void broadcast_apply(const T* a, const Shape& shape_a, const U* b, const Shape& shape_b, R* out, const Shape& shape,
                     F f) {
    const std::int64_t total = shape.count();
    if (total == 0) return;
    if (shape_a == shape && shape_b == shape) {
        for (std::int64_t i = 0; i < total; ++i) out[i] = f(a[i], b[i]);
        return;
    }
    std::int64_t sa[kMaxRank] = {}, sb[kMaxRank] = {}, index[kMaxRank] = {};
    broadcast_strides(shape_a, shape, sa);
    broadcast_strides(shape_b, shape, sb);
    const int last = shape.rank - 1;
    const std::int64_t inner = last < 0 ? 1 : shape.dim[last];
    const std::int64_t step_a = last < 0 ? 0 : sa[last], step_b = last < 0 ? 0 : sb[last];
    for (std::int64_t done = 0; done < total; done += inner) {
        if (step_a == 1 && step_b == 1)
            for (std::int64_t i = 0; i < inner; ++i) out[i] = f(a[i], b[i]);
        else if (step_a == 1)
            for (std::int64_t i = 0; i < inner; ++i) out[i] = f(a[i], b[0]);
        else if (step_b == 1)
            for (std::int64_t i = 0; i < inner; ++i) out[i] = f(a[0], b[i]);
        else
            for (std::int64_t i = 0; i < inner; ++i) out[i] = f(a[0], b[0]);
        out += inner;
        for (int d = last - 1; d >= 0; --d) {
            a += sa[d];
            b += sb[d];
            if (++index[d] < shape.dim[d]) break;
            a -= sa[d] * shape.dim[d];
            b -= sb[d] * shape.dim[d];
            index[d] = 0;
        }
    }
}

/// Calls `f` with a value of the C++ type of `type`: float, int64_t, int32_t, uint8_t (also bool), int8_t.
template <typename F>
void with_type(Type type, F f) {
    switch (type) {
        case Type::kFloat32:
            return f(float{});
        case Type::kInt64:
            return f(std::int64_t{});
        case Type::kInt32:
            return f(std::int32_t{});
        case Type::kBool:
        case Type::kUint8:
            return f(std::uint8_t{});
        case Type::kInt8:
            return f(std::int8_t{});
    }
}

/// As `with_type`; fails naming the node for bool.
template <typename F>
void with_number(const NodeInfo& node, Type type, F f) {
    if (type == Type::kBool) node.fail("type bool is not supported; expected a number");
    with_type(type, f);
}

/// A kernel y = f(x) on numbers of any type and shape; y has the type of x.
template <typename F>
Kernel unary_number(const NodeInfo& node, F f) {
    Kernel kernel;
    kernel.shape = [node](const Args& args) {
        node.check(args.has(0), "an input is needed");
        with_number(node, args.in(0).type, [](auto) {});
        args.out().type = args.in(0).type;
        args.out().shape = args.in(0).shape;
    };
    kernel.run = [f](const Args& args) {
        with_type(args.in(0).type, [&](auto zero) {
            using T = decltype(zero);
            const T* x = args.in(0).as<T>();
            T* y = args.out().as<T>();
            const std::int64_t count = args.in(0).shape.count();
            for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(f(x[i]));
        });
    };
    return kernel;
}

/// A kernel with two broadcast inputs of one number type; `boolean`: the result is bool.
template <typename F>
Kernel binary(const NodeInfo& node, F f, bool boolean = false) {
    Kernel kernel;
    kernel.shape = [node, boolean](const Args& args) {
        node.check(args.has(0) && args.has(1), "two inputs are needed");
        if (args.in(0).type != args.in(1).type)
            node.fail(std::string("input types differ: ") + type_name(args.in(0).type) + ", " +
                      type_name(args.in(1).type));
        if (!boolean) with_number(node, args.in(0).type, [](auto) {});
        args.out().type = boolean ? Type::kBool : args.in(0).type;
        args.out().shape = broadcast(node, args.in(0).shape, args.in(1).shape);
    };
    kernel.run = [f, boolean](const Args& args) {
        const Tensor &a = args.in(0), &b = args.in(1);
        Tensor& y = args.out();
        with_type(a.type, [&](auto zero) {
            using T = decltype(zero);
            if (boolean)
                broadcast_apply(a.as<T>(), a.shape, b.as<T>(), b.shape, y.as<std::uint8_t>(), y.shape,
                                [&f](T p, T q) { return static_cast<std::uint8_t>(f(p, q)); });
            else
                broadcast_apply(a.as<T>(), a.shape, b.as<T>(), b.shape, y.as<T>(), y.shape,
                                [&f](T p, T q) { return static_cast<T>(f(p, q)); });
        });
    };
    return kernel;
}

/// A kernel y = step(… step(x0, x1) …, xn), then finish(y, n), over broadcast inputs of one number type.
template <typename F, typename G>
Kernel variadic(const NodeInfo& node, F step, G finish) {
    Kernel kernel;
    kernel.shape = [node](const Args& args) {
        node.check(args.has(0), "an input is needed");
        with_number(node, args.in(0).type, [](auto) {});
        Shape shape = args.in(0).shape;
        for (std::size_t i = 1; i < args.input_count; ++i) {
            node.check(args.has(i) && args.in(i).type == args.in(0).type, "inputs must have one type");
            shape = broadcast(node, shape, args.in(i).shape);
        }
        args.out().type = args.in(0).type;
        args.out().shape = shape;
    };
    kernel.run = [step, finish](const Args& args) {
        Tensor& y = args.out();
        with_type(y.type, [&](auto zero) {
            using T = decltype(zero);
            T* out = y.as<T>();
            const Tensor& first = args.in(0);
            broadcast_apply(first.as<T>(), first.shape, first.as<T>(), first.shape, out, y.shape,
                            [](T p, T) { return p; });
            for (std::size_t i = 1; i < args.input_count; ++i)
                broadcast_apply(out, y.shape, args.in(i).as<T>(), args.in(i).shape, out, y.shape,
                                [&](T p, T q) { return static_cast<T>(step(p, q)); });
            const std::int64_t total = y.shape.count();
            const auto count = static_cast<T>(args.input_count);
            for (std::int64_t i = 0; i < total; ++i) out[i] = static_cast<T>(finish(out[i], count));
        });
    };
    return kernel;
}

/// The `reduction` attribute of the scatter operators.
enum class Reduction : std::uint8_t { kNone, kAdd, kMul, kMax, kMin };

inline Reduction reduction_of(const NodeInfo& node) {
    const std::string name = node.string("reduction", "none");
    if (name == "add") return Reduction::kAdd;
    if (name == "mul") return Reduction::kMul;
    if (name == "max") return Reduction::kMax;
    if (name == "min") return Reduction::kMin;
    node.check(name == "none", "reduction expected none, add, mul, max or min");
    return Reduction::kNone;
}

template <typename T>
T reduce_into(Reduction reduction, T old, T value) {
    switch (reduction) {
        case Reduction::kAdd:
            return wrapped(old, value, [](auto p, auto q) { return p + q; });
        case Reduction::kMul:
            return wrapped(old, value, [](auto p, auto q) { return p * q; });
        case Reduction::kMax:
            return std::max(old, value);
        case Reduction::kMin:
            return std::min(old, value);
        case Reduction::kNone:
            break;
    }
    return value;
}

/// Position of an index that counts from the end when negative; fails naming the node outside [-dim, dim).
inline std::int64_t normal_index(const NodeInfo& node, std::int64_t index, std::int64_t dim) {
    if (index < -dim || index >= dim)
        node.fail("index " + std::to_string(index) + " is outside an axis of " + std::to_string(dim));
    return index < 0 ? index + dim : index;
}

/// An int64 or int32 value.
inline std::int64_t integer_at(const Tensor& tensor, std::int64_t i) {
    return tensor.type == Type::kInt64 ? tensor.as<std::int64_t>()[i] : tensor.as<std::int32_t>()[i];
}

/// Copies `shape` elements of `item` bytes from strided (element strides, may be 0 or negative) to contiguous memory.
inline void gather_strided(const std::uint8_t* from, const std::int64_t* strides, const Shape& shape, std::uint8_t* to,
                           std::size_t item) {
    const std::int64_t total = shape.count();
    if (total == 0) return;
    const int last = shape.rank - 1;
    const std::int64_t inner = last < 0 ? 1 : shape.dim[last];
    const std::int64_t step = last < 0 ? 0 : strides[last];
    const auto bytes = static_cast<std::int64_t>(item);
    std::int64_t index[kMaxRank] = {};
    for (std::int64_t done = 0; done < total; done += inner) {
        if (step == 1) {
            std::memcpy(to, from, static_cast<std::size_t>(inner) * item);
        } else if (item == 4) {
            for (std::int64_t i = 0; i < inner; ++i) std::memcpy(to + 4 * i, from + i * step * 4, 4);
        } else {
            for (std::int64_t i = 0; i < inner; ++i) std::memcpy(to + bytes * i, from + i * step * bytes, item);
        }
        to += inner * bytes;
        for (int d = last - 1; d >= 0; --d) {
            from += strides[d] * bytes;
            if (++index[d] < shape.dim[d]) break;
            from -= strides[d] * shape.dim[d] * bytes;
            index[d] = 0;
        }
    }
}

/// A kernel that gives input 0 another shape: no bytes move. `reshape` computes the shape.
template <typename F>
Kernel view(F reshape) {
    Kernel kernel;
    kernel.alias = true;
    kernel.shape = [reshape](const Args& args) {
        args.out().type = args.in(0).type;
        args.out().shape = reshape(args);
    };
    kernel.run = [](const Args&) {};
    return kernel;
}

}  // namespace npuforge::cpu
