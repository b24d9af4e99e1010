// AngleDecode over independent codes, for host and device (op.py has the meaning).
#pragma once

#include <stdexcept>

#include "npuforge/parallel.hpp"

namespace npuforge::parallel {

/// Index: angle. `block`: angles that lie together below the axis.
struct AngleDecodeBody {
    const float* x;
    float* y;
    std::int64_t block;
    NPUFORGE_BOTH void operator()(std::int64_t i) const {
        constexpr float kQuarter = 1.57079632679489662f;
        const float* code = x + i / block * 2 * block + i % block;
        const float angle = 0.5f * std::atan2(code[0], code[block]);
        y[i] = angle >= kQuarter ? -kQuarter : angle;
    }
};

struct AngleDecode : Operator {
    static constexpr const char* name = "AngleDecode";
    static std::vector<Field> fields() { return {{"axis", false, {1}}}; }
    explicit AngleDecode(const Attributes& given) : axis_(given.integer("axis")) {}
    static std::vector<Element> outputs() { return {Element::kFloat32}; }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        out = {in.at(0)};
        out[0].at(axis(in[0].size())) = out[0].at(axis(in[0].size())) / 2;
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        const Dims<std::int64_t>& dims = call.output_dims[0];
        each(count_of(dims), AngleDecodeBody{call.in(0), call.out(), count_of(dims, axis(dims.size()), dims.size())});
    }

  private:
    std::size_t axis(std::size_t rank) const {
        const auto signed_rank = static_cast<std::int64_t>(rank);
        if (axis_ < -signed_rank || axis_ >= signed_rank) throw std::invalid_argument("AngleDecode: axis out of range");
        return static_cast<std::size_t>(axis_ < 0 ? axis_ + signed_rank : axis_);
    }
    std::int64_t axis_;
};

}  // namespace npuforge::parallel
