// Owns the bf16 arithmetic of the portable engines (DESIGN section 4): single float32 operations with denormals
// flushed, whatever the processor's control register says; the meaning that the SIMD kernels reproduce.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "bf16_operation.hpp"

namespace npuforge::sim::bf16 {

inline std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float from_bits(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
/// Denormal numbers become zeros of the same sign.
inline float flush(float x) { return (bits_of(x) & 0x7f800000u) == 0 ? from_bits(bits_of(x) & 0x80000000u) : x; }

inline float read(const std::uint8_t* p) {
    return flush(from_bits(static_cast<std::uint32_t>(p[0]) << 16 | static_cast<std::uint32_t>(p[1]) << 24));
}
inline float read_float(const std::uint8_t* p) {
    std::uint32_t bits;
    std::memcpy(&bits, p, 4);
    return flush(from_bits(bits));
}
/// Nearest, ties to even; NaN is 0x7fc0.
inline std::uint16_t round(float x) {
    if (x != x) return 0x7fc0;
    const std::uint32_t bits = bits_of(flush(x));
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline void write(std::uint8_t* p, std::uint16_t bits) {
    p[0] = static_cast<std::uint8_t>(bits);
    p[1] = static_cast<std::uint8_t>(bits >> 8);
}

/// Operands are flushed. A denormal sum of normal numbers is exact.
inline float add(float a, float b) { return flush(a + b); }
/// The exact product is tested: what rounds to less than 2^-126 in 24 bits becomes zero.
inline float multiply(float a, float b) {
    const double exact = static_cast<double>(a) * static_cast<double>(b);
    constexpr double kTiny = 0x1p-126 - 0x1p-151;
    if (std::fabs(exact) < kTiny) return exact < 0 || std::signbit(exact) ? -0.0f : 0.0f;
    return static_cast<float>(exact);
}

/// x * weight, +0 where the weight is zero.
inline float weigh(float x, float weight) { return weight == 0 ? 0.0f : multiply(x, weight); }

/// Order of bf16 values as integers: -0 below +0, NaN above everything.
inline std::int32_t key(std::uint16_t bits) {
    const auto value = static_cast<std::int16_t>(bits);
    return value < 0 ? value ^ 0x7fff : value;
}

/// \param table c0[256], c1[256], c2[256]
inline float curve(const Bf16StageOp& op, const std::uint8_t* table, float x) {
    if (x != x) return x;
    const auto tail = [&](bool is_input, std::uint16_t bits) {
        return is_input ? x : flush(from_bits(static_cast<std::uint32_t>(bits) << 16));
    };
    if (x < -8.0f) return tail(op.tail_low_is_input, op.tail_low);
    if (x >= 8.0f) return tail(op.tail_high_is_input, op.tail_high);
    int step = static_cast<int>(std::fabs(x) * 16.0f);
    if (step > 127) step = 127;
    const int index = x < 0 ? 127 - step : 128 + step;
    const float end = static_cast<float>(step) / 16.0f;
    const float d = add(x, x < 0 ? end : -end);
    const auto coefficient = [&](int c) { return read_float(table + 4 * (256 * c + index)); };
    return add(coefficient(0), multiply(d, add(coefficient(1), multiply(d, coefficient(2)))));
}

/// \param record a Bf16Record of the lane
inline std::uint16_t apply_stage(const Bf16StageOp& op, const std::uint8_t* record, const std::uint8_t* table,
                                 float sum) {
    const float bias = read_float(record), slope = read_float(record + 4), low = read_float(record + 8),
                high = read_float(record + 12);
    float value = add(sum, bias);
    if (op.kind == isa::Stage::TABLE)
        value = curve(op, table, value);
    else if (value < 0)
        value = multiply(value, slope);
    if (value < low) value = low;
    if (value > high) value = high;
    return round(low == high ? low : value);
}

/// (1 - weight)*p + weight*q, or p where the weight is 0.
inline float mix(float p, float q, float weight) {
    return weight == 0 ? p : add(multiply(add(1.0f, -weight), p), multiply(weight, q));
}

}  // namespace npuforge::sim::bf16
