// UnalignNhwc16 over the elements of its result, for host and device (op.py has the meaning).
#pragma once

#include <stdexcept>

#include "npuforge/parallel.hpp"

namespace npuforge::parallel {

/// Index: element of N, channels, H, W.
struct UnalignNhwc16Body {
    const float* x;
    float* y;
    std::int64_t channels, map, lanes;
    NPUFORGE_BOTH void operator()(std::int64_t i) const {
        const std::int64_t pixel = i % map, c = i / map % channels, image = i / map / channels;
        y[i] = x[(image * map + pixel) * lanes + c];
    }
};

struct UnalignNhwc16 : Operator {
    static constexpr const char* name = "UnalignNhwc16";
    static std::vector<Field> fields() { return {{"channels", false, {}}}; }
    explicit UnalignNhwc16(const Attributes& given) : channels_(given.integer("channels")) {
        if (channels_ < 1) throw std::invalid_argument("UnalignNhwc16: channels must be 1 or more");
    }
    static std::vector<Element> outputs() { return {Element::kFloat32}; }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        const Dims<Dim>& x = in.at(0);
        out = {{x.at(0), x.at(3) * 0 + channels_, x.at(1), x.at(2)}};
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        const Dims<std::int64_t>& x = call.input_dims[0];
        if (channels_ > x[3]) throw std::invalid_argument("UnalignNhwc16: channels must be at most the lanes");
        const std::int64_t map = x[1] * x[2];
        each(x[0] * channels_ * map, UnalignNhwc16Body{call.in(0), call.out(), channels_, map, x[3]});
    }

  private:
    std::int64_t channels_;
};

}  // namespace npuforge::parallel
