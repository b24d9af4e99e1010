// Owns the checks of parameter records, at load where their bytes are known and at run time where they are not.
#pragma once

#include <string>

#include "generic.hpp"
#include "refuse.hpp"
#include "stage.hpp"

namespace npuforge::sim {

inline void check_shift(const generic::Origin& origin, const char* field, int shift, std::size_t lane) {
    if (shift < 0 || shift > 47)
        refuse(origin.index, origin.opcode, field, "a shift of 0..47 in lane " + std::to_string(lane), shift);
}

inline isa::RequantRecord checked_requant(const generic::Origin& origin, isa::Stage kind, const std::uint8_t* records,
                                          std::size_t lane, const char* field = "requant_addr") {
    const auto q = isa::RequantRecord::decode(records + lane * isa::RequantRecord::BYTES);
    check_shift(origin, field, q.s0, lane);
    if (kind == isa::Stage::TABLE) {
        check_shift(origin, field, q.a, lane);
        if (q.b != 0) refuse(origin.index, origin.opcode, field, "b = 0 in lane " + std::to_string(lane), q.b);
    }
    return q;
}

inline isa::OperandRecord checked_operand(const generic::Origin& origin, const std::uint8_t* records,
                                          std::size_t lane) {
    const auto r = isa::OperandRecord::decode(records + lane * isa::OperandRecord::BYTES);
    if (r.reserved != 0)
        refuse(origin.index, origin.opcode, "operand_addr", "reserved = 0 in lane " + std::to_string(lane), r.reserved);
    return r;
}

inline isa::ResizeRecord checked_resize(const generic::Origin& origin, const char* field, const std::uint8_t* records,
                                        std::size_t i, int extent) {
    const auto r = isa::ResizeRecord::decode(records + i * isa::ResizeRecord::BYTES);
    for (const int source : {r.i0, r.i1}) {
        if (source < 0 || source >= extent)
            refuse(origin.index, origin.opcode, field,
                   "a source of 0.." + std::to_string(extent - 1) + " in record " + std::to_string(i), source);
    }
    if (r.w1 < 0 || r.w1 > 256)
        refuse(origin.index, origin.opcode, field, "a weight of 0..256 in record " + std::to_string(i), r.w1);
    if (r.reserved != 0)
        refuse(origin.index, origin.opcode, field, "reserved = 0 in record " + std::to_string(i), r.reserved);
    return r;
}

}  // namespace npuforge::sim
