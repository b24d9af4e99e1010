// CsrMatMul over the elements of its result, for host and device (op.py has the meaning).
#pragma once

#include <limits>

#include "npuforge/parallel.hpp"

namespace npuforge::parallel {

/// Index: element of the result. Sums in the order of the values. A row with a pointer or a column outside its range
/// becomes NaN: nothing outside the tensors is read, and a device has no other way to say it.
struct CsrMatMulBody {
    const float *x, *values;
    const std::int64_t *columns, *pointers;
    float* y;
    std::int64_t inner, width, count;
    NPUFORGE_BOTH void operator()(std::int64_t i) const {
        const std::int64_t row = i / width, first = pointers[row], last = pointers[row + 1];
        float sum = 0.0f;
        bool inside = 0 <= first && first <= last && last <= count;
        for (std::int64_t k = first; inside && k < last; ++k) {
            inside = columns[k] >= 0 && columns[k] < inner;
            if (inside) sum += values[k] * x[columns[k] * width + i % width];
        }
        y[i] = inside ? sum : std::numeric_limits<float>::quiet_NaN();
    }
};

struct CsrMatMul : Operator {
    static constexpr const char* name = "CsrMatMul";
    static std::vector<Field> fields() { return {}; }
    explicit CsrMatMul(const Attributes&) {}
    static std::vector<Element> outputs() { return {Element::kFloat32}; }
    static Element input(std::size_t i) { return i < 2 ? Element::kFloat32 : Element::kInt64; }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        out = {{in.at(3).at(0) + -1, in.at(0).at(1)}};
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        const auto* columns = static_cast<const std::int64_t*>(call.inputs[2]);
        const auto* pointers = static_cast<const std::int64_t*>(call.inputs[3]);
        const Dims<std::int64_t>& x = call.input_dims[0];
        each(count_of(call.output_dims[0]),
             CsrMatMulBody{call.in(0), call.in(1), columns, pointers, call.out(), x[0], x[1], call.input_dims[1][0]});
    }
};

}  // namespace npuforge::parallel
