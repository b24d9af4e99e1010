// Angles in bf16 radians to a whole turn as 2^16, of any size. Normative bits in hw_kernels/turns.py.
#pragma once

#include "edges.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t ANGLE_BITS = 20;          ///< fraction bits of radians inside
constexpr int32_t ANGLE_LIMIT = 1 << 30;    ///< 1,024 radians
constexpr int64_t ANGLE_UNITS = 341782638;  ///< round(2^30 / pi): 180 degrees as 2^16, 14 fraction bits

constexpr int ANGLE_FAR = 137;  ///< exponent field of 1,024 radians
/// What is left of whole half turns of 2^(e - 134) radians, 180 degrees as 2^32; e = 137 .. 254.
constexpr uint32_t ANGLE_REST[118] = {
    2347109817u, 399252338u,  798504677u,  1597009354u, 3194018708u, 2093070119u, 4186140238u, 4077313181u, 3859659065u,
    3424350834u, 2553734372u, 812501449u,  1625002897u, 3250005794u, 2205044292u, 115121288u,  230242576u,  460485153u,
    920970305u,  1841940611u, 3683881221u, 3072795147u, 1850622997u, 3701245994u, 3107524693u, 1920082089u, 3840164179u,
    3385361061u, 2475754826u, 656542357u,  1313084714u, 2626169428u, 957371560u,  1914743120u, 3829486240u, 3364005184u,
    2433043071u, 571118846u,  1142237692u, 2284475384u, 273983473u,  547966945u,  1095933890u, 2191867781u, 88768266u,
    177536532u,  355073063u,  710146127u,  1420292253u, 2840584507u, 1386201717u, 2772403435u, 1249839574u, 2499679148u,
    704391000u,  1408782000u, 2817563999u, 1340160703u, 2680321405u, 1065675514u, 2131351028u, 4262702057u, 4230436818u,
    4165906340u, 4036845384u, 3778723472u, 3262479647u, 2229991999u, 165016701u,  330033403u,  660066805u,  1320133610u,
    2640267221u, 985567146u,  1971134291u, 3942268583u, 3589569869u, 2884172442u, 1473377589u, 2946755178u, 1598543059u,
    3197086119u, 2099204942u, 4198409884u, 4101852471u, 3908737647u, 3522507998u, 2750048700u, 1205130103u, 2410260206u,
    525553116u,  1051106232u, 2102212464u, 4204424928u, 4113882561u, 3932797826u, 3570628355u, 2846289415u, 1397611534u,
    2795223067u, 1295478839u, 2590957678u, 886948059u,  1773896119u, 3547792238u, 2800617179u, 1306267062u, 2612534124u,
    930100953u,  1860201905u, 3720403811u, 3145840325u, 1996713354u, 3993426709u, 3691886121u, 3088804947u, 1882642597u,
    3765285195u};

/// Twice an angle in bf16, a whole turn as 2^16; of a finite one.
inline int16_t turn_of_bf16(uint16_t angle) {
    const int exponent = (int)exponent_of_bf16(angle);
    if (exponent < ANGLE_FAR) {
        const int64_t radians = fixed_of_bf16(angle, ANGLE_BITS, ANGLE_LIMIT);
        return (int16_t)(uint16_t)round_shift(radians * ANGLE_UNITS, ANGLE_BITS + 14);
    }
    if (exponent == 255) return 0;
    const uint32_t rest = ((angle & 0x7fu) | 0x80u) * ANGLE_REST[exponent - ANGLE_FAR];  // whole half turns fall away
    const uint32_t turn = (rest + (1u << 15)) >> 16;
    return (int16_t)(uint16_t)((angle >> 15) != 0 ? 0u - turn : turn);
}

/// An angle in bf16, a whole turn as 2^16: twice its half.
inline int16_t whole_turn_of_bf16(uint16_t angle) {
    NPU_INLINE
    const int exponent = (int)exponent_of_bf16(angle);
    return exponent < 2 || exponent == 255 ? (int16_t)0 : turn_of_bf16((uint16_t)(angle - 0x80u));
}

}  // namespace hls
}  // namespace npuforge
