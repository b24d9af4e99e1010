// Reshape on the CPU partition: a view; 0 copies a dimension (unless allowzero), one -1 is computed.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_reshape(Registry& registry) {
    registry.add("Reshape", [](const NodeInfo& node) {
        const bool allow_zero = node.integer("allowzero", 0) != 0;
        const std::vector<std::int64_t> attribute = node.integers("shape", {});
        const bool from_attribute = node.has("shape");
        return view([=](const Args& args) {
            const IntegerList target = from_attribute ? to_list(node, attribute) : read_integers(node, args, 1);
            node.check(target.present, "the new shape is missing");
            const Shape& in = args.in(0).shape;
            Shape out;
            int unknown = -1;
            std::int64_t known = 1;
            for (int i = 0; i < target.size; ++i) {
                std::int64_t dim = target.value[i];
                if (dim == 0 && !allow_zero) {
                    node.check(i < in.rank, "0 in the new shape copies a dimension that the input does not have");
                    dim = in.dim[i];
                }
                if (dim == -1) {
                    node.check(unknown < 0, "the new shape has more than one -1");
                    unknown = i;
                    dim = 1;
                } else {
                    node.check(dim >= 0, "the new shape has a negative dimension");
                    node.check(dim == 0 || known <= (std::int64_t{1} << 32) / dim, "the new shape is too large");
                    known *= dim;
                }
                out.push(dim);
            }
            if (unknown >= 0) {
                node.check(known > 0 && in.count() % known == 0, "the input does not divide into the new shape");
                out.dim[unknown] = in.count() / known;
            }
            if (out.count() != in.count()) node.fail("cannot reshape " + in.text() + " to " + out.text());
            return out;
        });
    });
}

}  // namespace npuforge::cpu
