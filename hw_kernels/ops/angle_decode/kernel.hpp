// AngleDecode in integers: (sin 2a, cos 2a) of any length to angles in [-90, 90) degrees, 180 degrees as 2^16; and on
// the NPU's int8 and bf16, angles in radians.
#pragma once

#include "cordic.hpp"
#include "edges.hpp"

namespace npuforge {
namespace hls {

/// 16 angles; int16 ends where -90 degrees meets 90.
inline void angle_decode(const int16_t sine[LANES], const int16_t cosine[LANES], int16_t angle[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        angle[lane] = cordic_angle(cosine[lane], sine[lane]);
    }
}

constexpr int32_t CODE_PIXELS_MAX = 1 << 20;
constexpr int32_t CODE_CHANNELS_MAX = 512;  ///< angles of a pixel
constexpr int64_t CODE_PI = 843314857;      ///< round(pi * 2^28)

/// int16 ends where -90 degrees meets 90: what is rounded to 90 from below stays below.
inline int16_t below_a_quarter(int16_t angle, bool positive) {
    NPU_INLINE
    return angle == -32768 && positive ? (int16_t)32767 : angle;
}

/// Whether kernels of codes take these sizes.
inline bool legal_codes(int32_t pixels, int32_t channels) {
    return pixels >= 0 && pixels <= CODE_PIXELS_MAX && channels >= 1 && channels <= CODE_CHANNELS_MAX;
}

/// x [pixels][2 * channels in lanes], sines first, to angles y [pixels][channels in lanes]. False, with nothing
/// written, where a size or a record is out of range.
/// \param into records [2 * channels]: a sine and its cosine to one fixed point of 16 bits
/// \param out_of records: 180 degrees as 2^16 to int8 radians
inline bool angle_decode_int8(const int8_t x[], int32_t pixels, int32_t channels, const int32_t into[],
                              const int32_t out_of[], int8_t y[]) {
    if (!legal_codes(pixels, channels)) return false;
    if (!legal_edges(into, 2 * channels) || !legal_edges(out_of, channels)) return false;
    const int32_t in_lanes = lanes_of(2 * channels), out_lanes = lanes_of(channels);
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(0, CODE_PIXELS_MAX)
        for (int32_t c = 0; c < channels; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, CODE_CHANNELS_MAX)
            const int8_t *sine = x + p * in_lanes + c, *cosine = sine + channels;
            const int32_t s = clamp(fixed_of_int8(*sine, read_edge(into[c])), -32768, 32767);
            const int32_t k = clamp(fixed_of_int8(*cosine, read_edge(into[channels + c])), -32768, 32767);
            y[p * out_lanes + c] =
                int8_of_fixed(below_a_quarter(cordic_angle((int16_t)k, (int16_t)s), s > 0), read_edge(out_of[c]));
        }
    }
    clear_pad_lanes(y, pixels, channels);
    return true;
}

/// The same in bf16: the larger of both exponents sets their fixed point. NaN where either is; infinities as atan2 has
/// them.
inline bool angle_decode_bf16(const uint16_t x[], int32_t pixels, int32_t channels, uint16_t y[]) {
    if (!legal_codes(pixels, channels)) return false;
    const int32_t in_lanes = lanes_of(2 * channels), out_lanes = lanes_of(channels);
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(0, CODE_PIXELS_MAX)
        for (int32_t c = 0; c < channels; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, CODE_CHANNELS_MAX)
            const uint16_t sine = x[p * in_lanes + c], cosine = x[p * in_lanes + channels + c];
            const int s = (int)exponent_of_bf16(sine), k = (int)exponent_of_bf16(cosine);
            const bool known = !is_nan_bf16(sine) && !is_nan_bf16(cosine);
            const int largest = s > k ? s : k;
            const int bits = largest == 255 ? -200 : 141 - largest;  // beside infinity everything is 0
            const int16_t angle =
                cordic_angle((int16_t)fixed_of_bf16(cosine, bits, 32767), (int16_t)fixed_of_bf16(sine, bits, 32767));
            y[p * out_lanes + c] =
                known ? bf16_of_fixed(below_a_quarter(angle, sine < 0x8000u && s != 0 && k != 255) * CODE_PI, 44)
                      : (uint16_t)0x7fc0;
        }
    }
    clear_pad_lanes(y, pixels, channels);
    return true;
}

}  // namespace hls
}  // namespace npuforge
