// AngleDecode in integers: (sin 2a, cos 2a) of any length to angles in [-90, 90) degrees, 180 degrees as 2^16.
#pragma once

#include "cordic.hpp"

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

}  // namespace hls
}  // namespace npuforge
