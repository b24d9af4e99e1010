// RESIZE and COPY units of the vector engine.
#pragma once

#include "checks.hpp"
#include "window.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t RESIZE_ONE = 256;  ///< weight 1

/// Entry `index` of a table of rows or columns. \tparam Record its layout, 8 bytes
template <class Record>
inline Record read_resize(const int8_t sram[][LANES], uint32_t table, uint32_t index) {
    uint8_t bytes[8];
    NPU_PARTITION(bytes, 1)
    sram_record(sram, table + Record::BYTES * index, bytes);
    return Record::decode(bytes);
}

/// Whether all records of a table are legal. \tparam Unit as in `resize_map`
template <class Unit>
inline bool resize_table_legal(const int8_t sram[][LANES], uint32_t table, uint32_t count, uint32_t size) {
    bool legal = true;
    for (uint32_t k = 0; k < count; ++k) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, 416)
        legal = legal && Unit::legal(read_resize<typename Unit::Record>(sram, table, k), size);
    }
    return legal;
}

/// The loops of RESIZE and RESIZE_BF16. Records are checked once more where they are used: an output laid over its own
/// tables (which the instruction set leaves undefined) must not lead addresses out of the memory.
/// \tparam Unit the arithmetic: `Record`, `Lane`, `BLOCK_BYTES`, and `legal`, `read`, `mix`, `write` of one block
/// \tparam I an instruction with the INPUT, OUTPUT and table fields
template <class Unit, class I>
inline Status resize_map(const I& i, int8_t sram[][LANES]) {
    typedef typename Unit::Record Record;
    if (!resize_table_legal<Unit>(sram, i.row_table_addr, i.out_h, i.in_h))
        return refuse(Code::BAD_PARAMETER, Id::row_table_addr);
    if (!resize_table_legal<Unit>(sram, i.col_table_addr, i.out_w, i.in_w))
        return refuse(Code::BAD_PARAMETER, Id::col_table_addr);
    for (uint32_t y = 0; y < i.out_h; ++y) {
        NPU_TRIPCOUNT(1, 416)
        const Record row = read_resize<Record>(sram, i.row_table_addr, y);
        if (!Unit::legal(row, i.in_h)) return refuse(Code::BAD_PARAMETER, Id::row_table_addr);
        for (uint32_t x = 0; x < i.out_w; ++x) {
            NPU_TRIPCOUNT(1, 416)
            const Record column = read_resize<Record>(sram, i.col_table_addr, x);
            if (!Unit::legal(column, i.in_w)) return refuse(Code::BAD_PARAMETER, Id::col_table_addr);
            for (uint32_t block = 0; block < i.blocks_out; ++block) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, 64)
                typename Unit::Lane q[4][LANES];
                typename Unit::Lane word[LANES];
                NPU_PARTITION(q, 0)
                NPU_PARTITION(word, 1)
                const uint32_t offset = Unit::BLOCK_BYTES * block;
                Unit::read(sram, input_address(i, row.i0, column.i0) + offset, q[0]);
                Unit::read(sram, input_address(i, row.i0, column.i1) + offset, q[1]);
                Unit::read(sram, input_address(i, row.i1, column.i0) + offset, q[2]);
                Unit::read(sram, input_address(i, row.i1, column.i1) + offset, q[3]);
                Unit::mix(q, row, column, word);
                Unit::write(sram, output_address(i, y, x) + offset, word);
            }
        }
    }
    return Status();
}

/// y = (sum of four weighted pixels + 2^15) >> 16, one rounding. Pure function.
inline void interpolate(const int8_t q[4][LANES], int32_t row_weight, int32_t column_weight, int8_t out[LANES]) {
    const int32_t row0 = RESIZE_ONE - row_weight;
    const int32_t column0 = RESIZE_ONE - column_weight;
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        const int32_t upper = column0 * q[0][lane] + column_weight * q[1][lane];
        const int32_t lower = column0 * q[2][lane] + column_weight * q[3][lane];
        out[lane] = (int8_t)((row0 * upper + row_weight * lower + 32768) >> 16);
    }
}

/// int8: integer weights of 256ths.
struct ResizeInt8 {
    typedef isa::ResizeRecord Record;
    typedef int8_t Lane;
    static constexpr uint32_t BLOCK_BYTES = (uint32_t)LANES;

    /// Whether a record stays inside the map and weighs 0..256, and no reserved member is set.
    static bool legal(const Record& r, uint32_t size) {
        NPU_INLINE
        return r.i0 >= 0 && r.i0 < (int32_t)size && r.i1 >= 0 && r.i1 < (int32_t)size && r.w1 >= 0 &&
               r.w1 <= RESIZE_ONE && r.reserved == 0;
    }
    static void read(const int8_t sram[][LANES], uint32_t address, int8_t word[LANES]) {
        NPU_INLINE
        sram_read(sram, address, word);
    }
    static void mix(const int8_t q[4][LANES], const Record& row, const Record& column, int8_t word[LANES]) {
        NPU_INLINE
        interpolate(q, row.w1, column.w1, word);
    }
    static void write(int8_t sram[][LANES], uint32_t address, const int8_t word[LANES]) {
        NPU_INLINE
        sram_write(sram, address, word);
    }
};

/// Executes a RESIZE instruction that has passed its check.
inline Status resize(const isa::Resize& i, int8_t sram[][LANES]) { return resize_map<ResizeInt8>(i, sram); }

/// Executes a COPY instruction that has passed its check.
inline Status copy(const isa::Copy& i, int8_t sram[][LANES]) {
    for (uint32_t y = 0; y < i.out_h; ++y) {
        NPU_TRIPCOUNT(1, 416)
        for (uint32_t x = 0; x < i.out_w; ++x) {
            NPU_TRIPCOUNT(1, 416)
            for (uint32_t block = 0; block < i.blocks_out; ++block) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, 64)
                int8_t word[LANES];
                NPU_PARTITION(word, 1)
                sram_read(sram, input_address(i, (int32_t)y, (int32_t)x) + (uint32_t)LANES * block, word);
                sram_write(sram, output_address(i, y, x) + (uint32_t)LANES * block, word);
            }
        }
    }
    return Status();
}

}  // namespace hls
}  // namespace npuforge
