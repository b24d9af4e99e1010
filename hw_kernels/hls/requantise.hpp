// Output stages: accumulator -> int8 (DESIGN section 4). Pure functions over one block of 16 lanes, and the loader of
// their parameters.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

/// Parameters of one block of 16 lanes (RequantRecord per lane).
struct StageParameters {
    int16_t m0[LANES];  ///< pwl: factor of positive accumulators; table: M1
    int16_t m1[LANES];  ///< pwl: factor of negative accumulators; table: M2
    int8_t s0[LANES];   ///< pwl, direct: shift; table: S1
    int8_t z[LANES];    ///< output zero point
    int8_t a[LANES];    ///< pwl, direct: low; table: S2
    int8_t b[LANES];    ///< pwl, direct: high
};

/// Stage fields of an instruction, and its activation table.
struct StageSettings {
    isa::Stage stage = isa::Stage::PWL;
    int fraction_bits = 0;
    bool tail_low_is_input = false;
    bool tail_high_is_input = false;
    int32_t tail_low = 0;
    int32_t tail_high = 0;
    int16_t table[TABLE_ENTRIES];
};

inline int32_t clamp(int64_t value, int32_t low, int32_t high) {
    NPU_INLINE
    const int64_t raised = value < low ? (int64_t)low : value;
    return (int32_t)(raised > high ? (int64_t)high : raised);
}

/// (value + 2^(shift-1)) >> shift, the rounding term being 0 for shift 0. Invariant: |value| < 2^62, 0 <= shift <= 47.
inline int64_t round_shift(int64_t value, int shift) {
    NPU_INLINE
    const int64_t half = shift > 0 ? (int64_t)1 << (shift - 1) : (int64_t)0;
    return (value + half) >> shift;
}

/// Piecewise-linear stage. Invariant: |acc| < 2^33, so that the product stays below 2^48.
/// \param acc accumulators \param p parameters of the block \param out result
inline void stage_pwl(const int64_t acc[LANES], const StageParameters& p, int8_t out[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        const int64_t product = acc[lane] * (acc[lane] < 0 ? p.m1[lane] : p.m0[lane]);
        out[lane] = (int8_t)clamp(round_shift(product, p.s0[lane]) + p.z[lane], p.a[lane], p.b[lane]);
    }
}

/// Direct stage: the multipliers have been applied before.
inline void stage_direct(const int64_t acc[LANES], const StageParameters& p, int8_t out[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        out[lane] = (int8_t)clamp(round_shift(acc[lane], p.s0[lane]) + p.z[lane], p.a[lane], p.b[lane]);
    }
}

/// Interpolated activation: pre-activation t with F fractional bits -> function value with F fractional bits.
/// Invariant: for -8*2^F <= t < 8*2^F the segment k = t >> (F-4) is -128..127, so both table reads are inside.
inline int32_t activation(int32_t t, const StageSettings& s) {
    NPU_INLINE
    const int fraction = s.fraction_bits;
    const int32_t edge = (int32_t)8 << fraction;
    if (t < -edge) return s.tail_low_is_input ? t : s.tail_low;
    if (t >= edge) return s.tail_high_is_input ? t : s.tail_high;
    const int32_t segment = t >> (fraction - 4);
    const int32_t rest = t & (((int32_t)1 << (fraction - 4)) - 1);
    const int32_t left = s.table[segment + 128];
    const int32_t right = s.table[segment + 129];
    const int32_t half = (int32_t)1 << (fraction - 5);
    return left + (((right - left) * rest + half) >> (fraction - 4));
}

/// Table stage.
inline void stage_table(const int64_t acc[LANES], const StageParameters& p, const StageSettings& s, int8_t out[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        const int32_t t = clamp(round_shift(acc[lane] * p.m0[lane], p.s0[lane]), -32768, 32767);
        const int64_t u = activation(t, s);
        out[lane] = (int8_t)clamp(round_shift(u * p.m1[lane], p.a[lane]) + p.z[lane], -128, 127);
    }
}

/// The stage that the instruction names.
inline void apply_stage(const int64_t acc[LANES], const StageParameters& p, const StageSettings& s, int8_t out[LANES]) {
    NPU_INLINE
    switch (s.stage) {
        case isa::Stage::TABLE:
            stage_table(acc, p, s, out);
            break;
        case isa::Stage::DIRECT:
            stage_direct(acc, p, out);
            break;
        default:
            stage_pwl(acc, p, out);
            break;
    }
}

/// Stage fields of an instruction that has passed its check, with the table read from SRAM.
/// \tparam I an instruction with the STAGE fields
template <class I>
inline void read_settings(const int8_t sram[][LANES], const I& i, StageSettings& s) {
    s.stage = (isa::Stage)i.stage;
    s.fraction_bits = (int)i.fraction_bits;
    s.tail_low_is_input = i.tail_low_is_input != 0u;
    s.tail_high_is_input = i.tail_high_is_input != 0u;
    s.tail_low = i.tail_low;
    s.tail_high = i.tail_high;
    if (s.stage == isa::Stage::TABLE) {
        for (uint32_t k = 0; k < (uint32_t)TABLE_ENTRIES; ++k) {
            NPU_PIPELINE
            s.table[k] = (int16_t)sram_int16(sram, i.table_addr + 2u * k);
        }
    }
}

/// Parameters of one block from SRAM. False if a shift is outside 0..47 or an unused member is not 0: nothing is
/// computed with it then.
/// \param address of the block's first record
inline bool read_parameters(const int8_t sram[][LANES], uint32_t address, isa::Stage stage, StageParameters& p) {
    bool legal = true;
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_PIPELINE
        uint8_t bytes[8];
        NPU_PARTITION(bytes, 1)
        sram_record(sram, address + isa::RequantRecord::BYTES * lane, bytes);
        const isa::RequantRecord r = isa::RequantRecord::decode(bytes);
        p.m0[lane] = (int16_t)r.m0;
        p.m1[lane] = (int16_t)r.m1;
        p.s0[lane] = (int8_t)r.s0;
        p.z[lane] = (int8_t)r.z;
        p.a[lane] = (int8_t)r.a;
        p.b[lane] = (int8_t)r.b;
        legal = legal && r.s0 >= 0 && r.s0 <= MAX_SHIFT;
        legal = legal && (stage != isa::Stage::TABLE || (r.a >= 0 && r.a <= MAX_SHIFT && r.b == 0));
    }
    return legal;
}

}  // namespace hls
}  // namespace npuforge
