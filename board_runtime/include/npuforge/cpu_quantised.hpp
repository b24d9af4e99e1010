// How scales and zero points of QuantizeLinear and DequantizeLinear lie over a tensor: one, one per channel, one per
// block.
#pragma once

#include "npuforge/cpu.hpp"

namespace npuforge::cpu {

class QuantisedLayout {
  public:
    explicit QuantisedLayout(const NodeInfo& node)
        : node_(node), axis_(node.integer("axis", 1)), block_(node.integer("block_size", 0)) {
        node.check(block_ >= 0, "block_size must not be negative");
    }

    /// Checks scale and zero point (inputs 1 and 2) against the data.
    void check(const Args& args) const {
        const Shape &x = args.in(0).shape, &scale = args.in(1).shape;
        node_.check(args.in(1).type == Type::kFloat32, "the scale must be float32");
        node_.check(!args.has(2) || args.in(2).shape == scale, "scale and zero point must have one shape");
        if (scale.count() == 1) return;
        const int axis = normal_axis(node_, axis_, x.rank);
        if (block_ == 0) {
            node_.check(scale.rank == 1 && scale.dim[0] == x.dim[axis], "one scale for every channel is needed");
            return;
        }
        node_.check(scale.rank == x.rank, "blocked scales need the rank of the data");
        for (int d = 0; d < x.rank; ++d)
            node_.check(scale.dim[d] == (d == axis ? (x.dim[d] + block_ - 1) / block_ : x.dim[d]),
                        "the scales do not match the blocks");
    }

    /// Calls f(first element, number of elements, which scale) for runs that share a scale, in order.
    template <typename F>
    void each_run(const Args& args, F f) const {
        const Shape &x = args.in(0).shape, &scale = args.in(1).shape;
        if (scale.count() == 1) return f(std::int64_t{0}, x.count(), std::int64_t{0});
        const int axis = normal_axis(node_, axis_, x.rank);
        const std::int64_t inner = x.count(axis + 1, x.rank), size = x.dim[axis], outer = x.count(0, axis);
        for (std::int64_t o = 0; o < outer; ++o)
            for (std::int64_t c = 0; c < size; ++c) {
                const std::int64_t first = (o * size + c) * inner;
                if (block_ == 0) {
                    f(first, inner, c);
                    continue;
                }
                for (std::int64_t i = 0; i < inner; ++i)
                    f(first + i, std::int64_t{1}, (o * scale.dim[axis] + c / block_) * inner + i);
            }
    }

  private:
    NodeInfo node_;
    std::int64_t axis_, block_;
};

}  // namespace npuforge::cpu
