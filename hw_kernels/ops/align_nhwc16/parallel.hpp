// AlignNhwc16 over the elements of its result, for host and device (op.py has the meaning).
#pragma once

#include "npuforge/parallel.hpp"

namespace npuforge::parallel {

/// Index: element of N, H, W, lanes.
struct AlignNhwc16Body {
    const float* x;
    float* y;
    std::int64_t channels, map, lanes;
    NPUFORGE_BOTH void operator()(std::int64_t i) const {
        const std::int64_t c = i % lanes, pixel = i / lanes % map, image = i / lanes / map;
        y[i] = c < channels ? x[(image * channels + c) * map + pixel] : 0.0f;
    }
};

struct AlignNhwc16 : Operator {
    static constexpr const char* name = "AlignNhwc16";
    static std::vector<Field> fields() { return {}; }
    explicit AlignNhwc16(const Attributes&) {}
    static std::vector<Element> outputs() { return {Element::kFloat32}; }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        const Dims<Dim>& x = in.at(0);
        out = {{x.at(0), x.at(2), x.at(3), (x.at(1) + 15) / 16 * 16}};
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        const Dims<std::int64_t>&x = call.input_dims[0], &y = call.output_dims[0];
        each(count_of(y), AlignNhwc16Body{call.in(0), call.out(), x[1], x[2] * x[3], y[3]});
    }
};

}  // namespace npuforge::parallel
