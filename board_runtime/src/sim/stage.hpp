// Owns the output stage in 64-bit integers (DESIGN section 4): the meaning that the SIMD stages reproduce.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "operation.hpp"

namespace npuforge::sim {

inline std::int64_t shift_round(std::int64_t value, int shift) {
    return shift == 0 ? value : (value + (std::int64_t{1} << (shift - 1))) >> shift;
}
inline std::int32_t saturate8(std::int64_t v) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(127, std::max<std::int64_t>(-128, v)));
}
inline std::int32_t saturate16(std::int64_t v) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(32767, std::max<std::int64_t>(-32768, v)));
}
inline std::int32_t read_i16(const std::uint8_t* p) {
    return static_cast<std::int16_t>(static_cast<std::uint16_t>(p[0] | p[1] << 8));
}
inline std::int32_t read_i32(const std::uint8_t* p) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(p[0]) | static_cast<std::uint32_t>(p[1]) << 8 |
                                     static_cast<std::uint32_t>(p[2]) << 16 | static_cast<std::uint32_t>(p[3]) << 24);
}

/// Interpolated table value of the 16-bit pre-activation t; `table` are the 257 little-endian int16 entries.
inline std::int32_t table_value(const StageOp& stage, const std::uint8_t* table, std::int32_t t) {
    const int f = stage.fraction_bits;
    const std::int32_t limit = 8 << f;
    if (t < -limit) return stage.tail_low_is_input ? t : stage.tail_low;
    if (t >= limit) return stage.tail_high_is_input ? t : stage.tail_high;
    const int step = f - 4;
    const std::int32_t k = t >> step, r = t & ((1 << step) - 1);
    const std::int32_t low = read_i16(table + 2 * (k + 128)), high = read_i16(table + 2 * (k + 129));
    return low + static_cast<std::int32_t>((std::int64_t{high - low} * r + (std::int64_t{1} << (f - 5))) >> step);
}

/// The output byte of one lane.
inline std::int8_t apply_stage(const StageOp& stage, const isa::RequantRecord& q, const std::uint8_t* table,
                               std::int64_t acc) {
    if (stage.kind == isa::Stage::TABLE) {
        const std::int32_t t = saturate16(shift_round(acc * q.m0, q.s0));
        const std::int64_t u = table_value(stage, table, t);
        return static_cast<std::int8_t>(saturate8(shift_round(u * q.m1, q.a) + q.z));
    }
    const std::int64_t scaled = stage.kind == isa::Stage::PWL ? acc * (acc < 0 ? q.m1 : q.m0) : acc;
    const std::int64_t y = shift_round(scaled, q.s0) + q.z;
    return static_cast<std::int8_t>(std::min<std::int64_t>(q.b, std::max<std::int64_t>(q.a, y)));
}

}  // namespace npuforge::sim
