// AngleEncode in integers: angles of boxes, 180 degrees as 2^16, to (sin 2a, cos 2a) with 14 fraction bits.
#pragma once

#include "cordic.hpp"

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

}  // namespace hls
}  // namespace npuforge
