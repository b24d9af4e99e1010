// AngleEncode in integers: angles of boxes, 180 degrees as 2^16, to (sin 2a, cos 2a) with 14 fraction bits; and on the
// NPU's int8 and bf16, angles in radians.
#pragma once

#include "cordic.hpp"
#include "turns.hpp"

namespace npuforge {
namespace hls {

/// 16 angles; twice an angle with 180 degrees as 2^16 is the same number with a whole turn as 2^16.
inline void angle_encode(const int16_t angle[LANES], int16_t sine[LANES], int16_t cosine[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        cordic_rotate(angle[lane], sine[lane], cosine[lane]);
    }
}

constexpr int32_t ANGLE_PIXELS_MAX = 1 << 20;
constexpr int32_t ANGLE_CHANNELS_MAX = 512;  ///< angles of a pixel

/// Whether kernels of angles take these sizes.
inline bool legal_angles(int32_t pixels, int32_t channels) {
    return pixels >= 0 && pixels <= ANGLE_PIXELS_MAX && channels >= 1 && channels <= ANGLE_CHANNELS_MAX;
}

/// x [pixels][channels in lanes] to y [pixels][2 * channels in lanes], sines first. False, with nothing written, where
/// a size or a record is out of range.
/// \param into records: radians of a channel, less whole half turns, to 180 degrees as 2^16 \param out_of records [2 *
/// channels]: 14 bits to int8
inline bool angle_encode_int8(const int8_t x[], int32_t pixels, int32_t channels, const int32_t into[],
                              const int32_t out_of[], int8_t y[]) {
    if (!legal_angles(pixels, channels)) return false;
    if (!legal_edges(into, channels) || !legal_edges(out_of, 2 * channels)) return false;
    const int32_t in_lanes = lanes_of(channels), out_lanes = lanes_of(2 * channels);
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(0, ANGLE_PIXELS_MAX)
        for (int32_t c = 0; c < channels; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, ANGLE_CHANNELS_MAX)
            int16_t sine = 0, cosine = 0;
            cordic_rotate((int16_t)(uint16_t)fixed_of_int8(x[p * in_lanes + c], read_edge(into[c])), sine, cosine);
            y[p * out_lanes + c] = int8_of_fixed(sine, read_edge(out_of[c]));
            y[p * out_lanes + channels + c] = int8_of_fixed(cosine, read_edge(out_of[channels + c]));
        }
    }
    clear_pad_lanes(y, pixels, 2 * channels);
    return true;
}

/// The same in bf16. NaN where the angle is NaN or infinite.
inline bool angle_encode_bf16(const uint16_t x[], int32_t pixels, int32_t channels, uint16_t y[]) {
    if (!legal_angles(pixels, channels)) return false;
    const int32_t in_lanes = lanes_of(channels), out_lanes = lanes_of(2 * channels);
    for (int32_t p = 0; p < pixels; ++p) {
        NPU_TRIPCOUNT(0, ANGLE_PIXELS_MAX)
        for (int32_t c = 0; c < channels; ++c) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, ANGLE_CHANNELS_MAX)
            const uint16_t angle = x[p * in_lanes + c];
            const bool known = is_finite_bf16(angle);
            int16_t sine = 0, cosine = 0;
            cordic_rotate(turn_of_bf16(angle), sine, cosine);
            y[p * out_lanes + c] = known ? bf16_of_fixed(sine, 14) : (uint16_t)0x7fc0;
            y[p * out_lanes + channels + c] = known ? bf16_of_fixed(cosine, 14) : (uint16_t)0x7fc0;
        }
    }
    clear_pad_lanes(y, pixels, 2 * channels);
    return true;
}

}  // namespace hls
}  // namespace npuforge
