// LeakyReluMask over elements, for host and device (op.py has the meaning).
#pragma once

#include "npuforge/parallel.hpp"

namespace npuforge::parallel {

/// `mask` may be nullptr.
struct LeakyReluMaskBody {
    const float* x;
    float *y, *mask;
    float alpha;
    NPUFORGE_BOTH void operator()(std::int64_t i) const {
        y[i] = leaky_relu(x[i], alpha);
        if (mask) mask[i] = x[i] > 0.0f ? 1.0f : 0.0f;
    }
};

struct LeakyReluMask : Operator {
    static constexpr const char* name = "LeakyReluMask";
    static std::vector<Field> fields() { return {{"alpha", true, {static_cast<double>(0.01f)}}}; }
    explicit LeakyReluMask(const Attributes& given) : alpha_(static_cast<float>(given.number("alpha"))) {}
    static std::vector<Element> outputs() { return {Element::kFloat32, Element::kFloat32}; }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        out = {in.at(0), in.at(0)};
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        float* mask = call.outputs.size() > 1 ? call.out(1) : nullptr;
        each(count_of(call.input_dims[0]), LeakyReluMaskBody{call.in(0), call.out(), mask, alpha_});
    }

  private:
    float alpha_;
};

}  // namespace npuforge::parallel
