// RotatedIou over pairs of boxes, for host and device (op.py has the meaning).
#pragma once

#include "npuforge/parallel.hpp"
#include "npuforge/rotated.hpp"

namespace npuforge::parallel {

/// Index: pair.
struct RotatedIouBody {
    const float *a, *b;
    float* y;
    std::int64_t columns;
    NPUFORGE_BOTH void operator()(std::int64_t i) const {
        y[i] = static_cast<float>(rotated_overlap(a + 5 * (i / columns), b + 5 * (i % columns)));
    }
};

struct RotatedIou : Operator {
    static constexpr const char* name = "RotatedIou";
    static std::vector<Field> fields() { return {}; }
    explicit RotatedIou(const Attributes&) {}
    static std::vector<Element> outputs() { return {Element::kFloat32}; }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        out = {{in.at(0).at(0), in.at(1).at(0)}};
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        const Dims<std::int64_t>& dims = call.output_dims[0];
        each(count_of(dims), RotatedIouBody{call.in(0), call.in(1), call.out(), dims[1]});
    }
};

}  // namespace npuforge::parallel
