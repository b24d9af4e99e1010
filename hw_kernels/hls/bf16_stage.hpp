// Output stage of the bf16 engines: sum + bias, slope or curve, limits, one rounding; and access to bf16 lanes in the
// on-chip memory. Pure functions and loaders of their parameters.
#pragma once

#include "checks.hpp"
#include "float_units.hpp"
#include "window.hpp"

namespace npuforge {
namespace hls {

constexpr uint32_t BF16_BLOCK_BYTES = 2u * (uint32_t)LANES;
constexpr int SEGMENTS = 256;                ///< of a curve, over [-8, 8)
constexpr uint32_t EDGE_BITS = 0x41000000u;  ///< 8.0
constexpr uint32_t SIXTEEN_EXPONENT = 4u;    ///< a segment is 1/16
constexpr uint32_t SEGMENT_BYTES = 4u;       ///< of one coefficient

/// 16 bf16 lanes, two words; `address` is a multiple of 16.
inline void read_block(const int8_t sram[][LANES], uint32_t address, uint16_t lanes[LANES]) {
    NPU_INLINE
    NPU_UNROLL_NEXT
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_UNROLL
        const uint32_t low = (uint8_t)sram_byte(sram, address + 2u * lane);
        const uint32_t high = (uint8_t)sram_byte(sram, address + 2u * lane + 1u);
        lanes[lane] = (uint16_t)(low | (high << 8));
    }
}

inline void write_block(int8_t sram[][LANES], uint32_t address, const uint16_t lanes[LANES]) {
    NPU_INLINE
    NPU_UNROLL_NEXT
    for (uint32_t half = 0; half < 2u; ++half) {
        NPU_UNROLL
        int8_t word[LANES];
        NPU_PARTITION(word, 1)
        NPU_UNROLL_NEXT
        for (uint32_t k = 0; k < 8u; ++k) {
            NPU_UNROLL
            word[2u * k] = (int8_t)isa::sign_extend((uint32_t)lanes[8u * half + k], 8);
            word[2u * k + 1u] = (int8_t)isa::sign_extend((uint32_t)lanes[8u * half + k] >> 8, 8);
        }
        sram_write(sram, address + (uint32_t)LANES * half, word);
    }
}

/// float32 at an address that is a multiple of 4.
inline uint32_t read_float(const int8_t sram[][LANES], uint32_t address) {
    NPU_INLINE
    return canonical((uint32_t)sram_int32(sram, address));
}

/// Records of one block of 16 lanes (Bf16Record per lane).
struct Bf16Parameters {
    uint32_t bias[LANES];
    uint32_t slope[LANES];
    uint32_t low[LANES];
    uint32_t high[LANES];
};

/// Stage fields of an instruction, and its curve.
struct Bf16Settings {
    isa::Stage stage = isa::Stage::PWL;
    bool tail_low_is_input = false;
    bool tail_high_is_input = false;
    uint32_t tail_low = 0;
    uint32_t tail_high = 0;
    uint32_t table[3][SEGMENTS];
};

/// \tparam I an instruction with the STAGE_BF16 fields that has passed its check
template <class I>
inline void read_bf16_settings(const int8_t sram[][LANES], const I& i, Bf16Settings& s) {
    s.stage = (isa::Stage)i.stage;
    s.tail_low_is_input = i.tail_low_is_input != 0u;
    s.tail_high_is_input = i.tail_high_is_input != 0u;
    s.tail_low = widen_bf16((uint16_t)i.tail_low);
    s.tail_high = widen_bf16((uint16_t)i.tail_high);
    if (s.stage != isa::Stage::TABLE) return;
    for (uint32_t c = 0; c < 3u; ++c) {
        for (uint32_t k = 0; k < (uint32_t)SEGMENTS; ++k) {
            NPU_PIPELINE
            s.table[c][k] = read_float(sram, i.table_addr + SEGMENT_BYTES * ((uint32_t)SEGMENTS * c + k));
        }
    }
}

/// \param address of the block's first record
inline void read_bf16_parameters(const int8_t sram[][LANES], uint32_t address, Bf16Parameters& p) {
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_PIPELINE
        const uint32_t record = address + isa::Bf16Record::BYTES * lane;
        p.bias[lane] = read_float(sram, record);
        p.slope[lane] = read_float(sram, record + 4u);
        p.low[lane] = read_float(sram, record + 8u);
        p.high[lane] = read_float(sram, record + 12u);
    }
}

/// c0 + d*(c1 + d*c2) inside [-8, 8), d the distance from the segment's end nearest zero; tails outside; NaN for NaN.
inline uint32_t curve(uint32_t x, const Bf16Settings& s) {
    if (is_nan(x)) return NAN_BITS;
    const bool negative = (x & SIGN_BIT) != 0u && !is_zero(x);
    const uint32_t magnitude = is_zero(x) ? 0u : x & ~SIGN_BIT;
    if (negative && magnitude > EDGE_BITS) return s.tail_low_is_input ? x : s.tail_low;
    if (!negative && magnitude >= EDGE_BITS) return s.tail_high_is_input ? x : s.tail_high;
    // floor(magnitude * 16): the mantissa shifted by the exponent; -8 belongs to the last segment.
    const uint32_t exponent = exponent_of(magnitude) + SIXTEEN_EXPONENT;
    const uint32_t mantissa = (magnitude & (HIDDEN_BIT - 1u)) | HIDDEN_BIT;
    uint32_t step = exponent < 127u ? 0u : mantissa >> (150u - exponent);
    if (step > (uint32_t)SEGMENTS / 2u - 1u) step = (uint32_t)SEGMENTS / 2u - 1u;
    // step / 16 as float32.
    uint32_t end = 0;
    if (step != 0u) {
        const uint32_t lead = 31u - npu_leading_zeros(step);
        end = ((127u + lead - SIXTEEN_EXPONENT) << MANTISSA_BITS) |
              ((step << (MANTISSA_BITS - lead)) & (HIDDEN_BIT - 1u));
    }
    const uint32_t index = negative ? (uint32_t)SEGMENTS / 2u - 1u - step : (uint32_t)SEGMENTS / 2u + step;
    const uint32_t d = subtract_float(x, negative ? end | SIGN_BIT : end);
    const uint32_t inner = add_float(s.table[1][index], multiply_float(d, s.table[2][index]));
    return add_float(s.table[0][index], multiply_float(d, inner));
}

/// The whole stage for 16 lanes.
inline void apply_bf16_stage(const uint32_t sum[LANES], const Bf16Parameters& p, const Bf16Settings& s,
                             uint16_t out[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        uint32_t value = add_float(sum[lane], p.bias[lane]);
        if (s.stage == isa::Stage::TABLE) {
            value = curve(value, s);
        } else if (less_float(value, 0u)) {
            value = multiply_float(value, p.slope[lane]);
        }
        if (less_float(value, p.low[lane])) value = p.low[lane];
        if (less_float(p.high[lane], value)) value = p.high[lane];
        out[lane] = round_bf16(equal_float(p.low[lane], p.high[lane]) ? p.low[lane] : value);
    }
}

}  // namespace hls
}  // namespace npuforge
