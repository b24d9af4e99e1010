// Owns the preparation of stage parameters (see simd_pack.hpp).
#include "simd_pack.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "stage.hpp"

namespace npuforge::sim {
namespace {

template <class F>
LaneMap make_map(F lane) {
    LaneMap map{};
    for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 16; ++e) map[j][e] = static_cast<std::uint8_t>(lane(j, e));
    return map;
}

constexpr double kExact = 16777216.0;                // 2^24
constexpr double kConvertible = 2147483648.0 - 512;  // 2^31 - 2^9

bool fits_single(double bound, double multiplier) {
    return bound <= kExact && bound * std::fabs(multiplier) < kConvertible;
}

}  // namespace

const LaneMap& pixel_lanes() {
    static const LaneMap map = make_map([](int, int e) { return e; });
    return map;
}
const LaneMap& quad_lanes() {
    static const LaneMap map = make_map([](int j, int e) { return 4 * j + e % 4; });
    return map;
}
const LaneMap& unpacked_lanes() {
    static const LaneMap map = make_map([](int j, int e) { return 4 * (j % 2) + 8 * (e / 4 % 2) + e % 4; });
    return map;
}

const LaneMap& half_lanes() {
    static const LaneMap map = make_map([](int j, int e) { return 8 * (j % 2) + e % 8; });
    return map;
}

void StagePack::integer(const std::int32_t* acc, int count, int block, std::uint8_t* out, std::size_t out_step) const {
    const isa::RequantRecord* q = records.data() + static_cast<std::size_t>(block) * 16;
    for (int p = 0; p < count; ++p)
        for (int o = 0; o < 16; ++o)
            out[p * out_step + o] = static_cast<std::uint8_t>(apply_stage(op, q[o], raw_table.data(), acc[16 * p + o]));
}

void make_stage(StagePack& pack, const StageOp& op, const Constants& constants, int blocks,
                const std::vector<double>& bound, const LaneMap& lanes, const double* scale) {
    const std::size_t count = 16 * static_cast<std::size_t>(blocks);
    pack.op = op;
    pack.records.resize(count);
    for (std::size_t lane = 0; lane < count; ++lane)
        pack.records[lane] = isa::RequantRecord::decode(constants.requant + lane * isa::RequantRecord::BYTES);
    const bool table = op.kind == isa::Stage::TABLE;
    bool exact = true;
    pack.linear = true;
    std::vector<double> positive(count), negative(count), second(count);
    for (std::size_t lane = 0; lane < count; ++lane) {
        const isa::RequantRecord& q = pack.records[lane];
        const double unit = std::ldexp(scale != nullptr ? scale[lane] : 1.0, -q.s0);
        positive[lane] = unit * (op.kind == isa::Stage::DIRECT ? 1 : q.m0);
        negative[lane] = op.kind == isa::Stage::PWL ? unit * q.m1 : positive[lane];
        second[lane] = table ? std::ldexp(q.m1, -q.a - 16) : 0;
        pack.linear = pack.linear && positive[lane] == negative[lane];
        exact = exact && fits_single(bound[lane], positive[lane]) && fits_single(bound[lane], negative[lane]);
    }
    if (table) {
        std::memcpy(pack.raw_table.data(), constants.table, pack.raw_table.size());
        const int step = op.fraction_bits - 4;
        for (int k = -128; k < 128; ++k) {
            const int low = read_i16(constants.table + 2 * (k + 128)), high = read_i16(constants.table + 2 * (k + 129));
            const int difference = high - low;
            // difference * rest + rounding must fit 16 bits, so that the interpolation can stay in 16-bit lanes.
            exact = exact && std::abs(difference) * ((1 << step) - 1) + (1 << (step - 1)) <= 32767;
            const auto low16 = static_cast<std::int16_t>(low), difference16 = static_cast<std::int16_t>(difference);
            pack.table[k & 255] = low16;
            pack.difference[k & 255] = difference16;
            pack.pairs[k & 255] = static_cast<std::int32_t>(static_cast<std::uint32_t>(difference16) << 16 |
                                                            static_cast<std::uint16_t>(low16));
        }
    }
    if (table) {
        TableVectors& v = pack.vectors;
        const int step = op.fraction_bits - 4, limit = 8 << op.fraction_bits;
        const auto fill = [](std::int16_t (&to)[32], int value) {
            std::fill(to, to + 32, static_cast<std::int16_t>(value));
        };
        fill(v.rest_mask, (1 << step) - 1);
        fill(v.one, 1 << step);
        fill(v.rounding, 1 << (step - 1));
        std::fill(v.wide_rounding, v.wide_rounding + 16, 1 << (step - 1));
        fill(v.lowest, -limit);
        fill(v.highest, limit - 1);
        fill(v.tail_low, op.tail_low);
        fill(v.tail_high, op.tail_high);
    }
    pack.kind = !exact ? StageKind::kInteger : table ? StageKind::kTable : StageKind::kPwl;
    if (!exact) return;
    pack.sets.resize(static_cast<std::size_t>(blocks));
    for (int block = 0; block < blocks; ++block) {
        StageSet& set = pack.sets[static_cast<std::size_t>(block)];
        for (int j = 0; j < 4; ++j) {
            for (int e = 0; e < 16; ++e) {
                const std::size_t lane = static_cast<std::size_t>(block) * 16 + lanes[j][e];
                const float z = static_cast<float>(pack.records[lane].z) + 0.5F;
                set.positive[j][e] = static_cast<float>(positive[lane]);
                set.negative[j][e] = static_cast<float>(negative[lane]);
                set.addend[j][e] = table ? 0.5F : z;
                set.second[j][e] = static_cast<float>(second[lane]);
                set.second_addend[j][e] = z;
            }
        }
        for (int i = 0; i < 64; ++i) {
            const isa::RequantRecord& q = pack.records[static_cast<std::size_t>(block) * 16 + i % 16];
            set.low[i] = static_cast<std::int8_t>(table ? -128 : q.a);
            set.high[i] = static_cast<std::int8_t>(table ? 127 : q.b);
        }
    }
}

}  // namespace npuforge::sim
