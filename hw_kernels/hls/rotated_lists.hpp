// Lists of rotated boxes as the NPU holds them, int8 or bf16 in NHWC-16: (cx, cy, width, height, angle in radians) in
// the first five lanes. Overlaps are ratios: each pair is brought to a unit of its own, the longest of its four sides
// being 2^13 .. 2^14, and goes to rotated_box.hpp. Normative bits in hw_kernels/rotated_lists.py.
#pragma once

#include "rotated_box.hpp"
#include "turns.hpp"

namespace npuforge {
namespace hls {

constexpr int PAIR_BITS = 14;                 ///< of the longest side
constexpr int32_t PAIR_CENTRE_MAX = 1 << 30;  ///< bf16 centres are clamped to +- this
constexpr int64_t PAIR_FAR = 32767;           ///< a distance at which no two boxes touch
constexpr int32_t CENTRE_SHIFT_MAX = 32;

/// int8 boxes; records [5] lead to one unit for sides, to 2^centre_shift of it for centres, to a turn as 2^16.
struct Int8Boxes {
    const int8_t* boxes;
    const int32_t* records;
    int32_t centre_shift;

    bool legal() const {
        return centre_shift >= 0 && centre_shift <= CENTRE_SHIFT_MAX && legal_edges(records, BOX_VALUES);
    }
    int32_t at(int32_t box, int value) const {
        return fixed_of_int8(boxes[box * LANES + value], read_edge(records[value]));
    }
};

struct Bf16Boxes {
    const uint16_t* boxes;

    bool legal() const { return true; }
    uint16_t at(int32_t box, int value) const { return boxes[box * LANES + value]; }
};

/// A distance in the pair's unit, 2^-left of the given one.
inline int16_t pair_distance(int64_t distance, int left) {
    if (left <= 0) return (int16_t)clamp(round_shift(distance, -left), -PAIR_FAR, PAIR_FAR);
    return (int16_t)clamp(clamp(distance, -PAIR_FAR, PAIR_FAR) * ((int64_t)1 << left), -PAIR_FAR, PAIR_FAR);
}

/// Intersection over union with 14 fraction bits of box i of one list and box j of another.
inline int16_t pair_overlap(const Int8Boxes& a, int32_t i, const Int8Boxes& b, int32_t j) {
    const int32_t sides[4] = {a.at(i, 2), a.at(i, 3), b.at(j, 2), b.at(j, 3)};
    uint32_t longest = 0;
    for (int k = 0; k < 4; ++k) {
        const uint32_t side = (uint32_t)(sides[k] < 0 ? -sides[k] : sides[k]);
        longest = side > longest ? side : longest;
    }
    if (longest == 0u) return 0;
    const int left = PAIR_BITS - (64 - leading_zeros_64(longest));
    const int64_t centre = (int64_t)1 << a.centre_shift;
    const int16_t first[BOX_VALUES] = {0, 0, pair_distance(sides[0], left), pair_distance(sides[1], left),
                                       (int16_t)(uint16_t)a.at(i, 4)};
    const int16_t second[BOX_VALUES] = {pair_distance(((int64_t)b.at(j, 0) - a.at(i, 0)) * centre, left),
                                        pair_distance(((int64_t)b.at(j, 1) - a.at(i, 1)) * centre, left),
                                        pair_distance(sides[2], left), pair_distance(sides[3], left),
                                        (int16_t)(uint16_t)b.at(j, 4)};
    return rotated_overlap(first, second);
}

/// From one bf16 centre to another in units of 2^-bits; what lies beyond the clamp differs by far more than any side.
inline int16_t centre_distance(uint16_t from, uint16_t to, int bits) {
    const int32_t p = fixed_of_bf16(from, bits, PAIR_CENTRE_MAX), q = fixed_of_bf16(to, bits, PAIR_CENTRE_MAX);
    const bool beyond = p == q && (p == PAIR_CENTRE_MAX || p == -PAIR_CENTRE_MAX);
    return beyond && from != to ? (int16_t)PAIR_FAR : (int16_t)clamp((int64_t)q - p, -PAIR_FAR, PAIR_FAR);
}

/// The same in bf16; 0 where a value is NaN or infinite.
inline int16_t pair_overlap(const Bf16Boxes& a, int32_t i, const Bf16Boxes& b, int32_t j) {
    bool finite = true;
    int exponent = 0;
    for (int k = 0; k < BOX_VALUES; ++k) {
        const uint16_t p = a.at(i, k), q = b.at(j, k);
        finite = finite && is_finite_bf16(p) && is_finite_bf16(q);
        const int of_p = (int)exponent_of_bf16(p), of_q = (int)exponent_of_bf16(q);
        const int larger = of_p > of_q ? of_p : of_q;
        if ((k == 2 || k == 3) && larger > exponent) exponent = larger;
    }
    if (!finite || exponent == 0) return 0;
    const int bits = 126 + PAIR_BITS - exponent;
    const int32_t most = 1 << PAIR_BITS;
    const int16_t first[BOX_VALUES] = {0, 0, (int16_t)fixed_of_bf16(a.at(i, 2), bits, most),
                                       (int16_t)fixed_of_bf16(a.at(i, 3), bits, most), whole_turn_of_bf16(a.at(i, 4))};
    const int16_t second[BOX_VALUES] = {centre_distance(a.at(i, 0), b.at(j, 0), bits),
                                        centre_distance(a.at(i, 1), b.at(j, 1), bits),
                                        (int16_t)fixed_of_bf16(b.at(j, 2), bits, most),
                                        (int16_t)fixed_of_bf16(b.at(j, 3), bits, most), whole_turn_of_bf16(b.at(j, 4))};
    return rotated_overlap(first, second);
}

}  // namespace hls
}  // namespace npuforge
