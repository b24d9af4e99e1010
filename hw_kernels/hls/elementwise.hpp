// ELTWISE unit of the vector engine: add, subtract, multiply, per-channel affine; every output stage behind it.
#pragma once

#include "checks.hpp"
#include "requantise.hpp"
#include "window.hpp"

namespace npuforge {
namespace hls {

/// Operand parameters of one block (OperandRecord per lane) and the addend K of affine.
struct OperandParameters {
    int16_t ma[LANES];
    int16_t mb[LANES];
    int8_t za[LANES];
    int8_t zb[LANES];
    int32_t k[LANES];
};

/// d of DESIGN section 4 for 16 lanes. Pure function; |d| < 2^33.
inline void combine(isa::EltwiseKind kind, const int8_t a[LANES], const int8_t b[LANES], const OperandParameters& p,
                    int64_t d[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        const int64_t left = (int32_t)a[lane] - p.za[lane];
        const int64_t right = (int32_t)b[lane] - p.zb[lane];
        switch (kind) {
            case isa::EltwiseKind::ADD:
                d[lane] = p.ma[lane] * left + p.mb[lane] * right;
                break;
            case isa::EltwiseKind::SUB:
                d[lane] = p.ma[lane] * left - p.mb[lane] * right;
                break;
            case isa::EltwiseKind::MUL:
                d[lane] = left * right * p.ma[lane];
                break;
            default:
                d[lane] = p.ma[lane] * left + p.k[lane];
                break;
        }
    }
}

/// Records of one block, and the addends of affine, which alone reads `addend_addr`. False if a reserved member is not
/// 0.
inline bool read_operands(const int8_t sram[][LANES], uint32_t operand_addr, bool affine, uint32_t addend_addr,
                          uint32_t block, OperandParameters& p) {
    bool legal = true;
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_PIPELINE
        uint8_t bytes[8];
        NPU_PARTITION(bytes, 1)
        const uint32_t index = (uint32_t)LANES * block + lane;
        sram_record(sram, operand_addr + isa::OperandRecord::BYTES * index, bytes);
        const isa::OperandRecord r = isa::OperandRecord::decode(bytes);
        p.ma[lane] = (int16_t)r.ma;
        p.mb[lane] = (int16_t)r.mb;
        p.za[lane] = (int8_t)r.za;
        p.zb[lane] = (int8_t)r.zb;
        p.k[lane] = affine ? sram_int32(sram, addend_addr + 4u * index) : 0;
        legal = legal && r.reserved == 0;
    }
    return legal;
}

/// Address of pixel (y, x) of operand b. \tparam I an instruction with the OPERAND_B fields
template <class I>
inline uint32_t second_address(const I& i, uint32_t y, uint32_t x) {
    NPU_INLINE
    return i.b_addr + y * i.b_row_stride + x * i.b_pixel_stride;
}

/// Word of operand b: 16 lanes, one byte for all of them, or zeros for affine, which has no operand b.
inline void read_second(const int8_t sram[][LANES], const isa::Eltwise& i, uint32_t y, uint32_t x, uint32_t block,
                        int8_t b[LANES]) {
    const uint32_t pixel = second_address(i, y, x);
    const uint32_t address = i.broadcast_b != 0u ? pixel : pixel + (uint32_t)LANES * block;
    NPU_UNROLL_NEXT
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_UNROLL
        const bool absent = i.kind == (uint32_t)isa::EltwiseKind::AFFINE;
        b[lane] = absent ? (int8_t)0 : sram_byte(sram, i.broadcast_b != 0u ? address : address + lane);
    }
}

/// Executes an ELTWISE instruction that has passed its check.
inline Status elementwise(const isa::Eltwise& i, int8_t sram[][LANES]) {
    const isa::EltwiseKind kind = (isa::EltwiseKind)i.kind;
    StageSettings settings;
    NPU_PARTITION(settings.table, 1)
    read_settings(sram, i, settings);
    for (uint32_t block = 0; block < i.blocks_out; ++block) {
        NPU_TRIPCOUNT(1, 64)
        StageParameters parameters;
        OperandParameters operands;
        const uint32_t address = i.requant_addr + isa::RequantRecord::BYTES * (uint32_t)LANES * block;
        if (!read_parameters(sram, address, settings.stage, parameters))
            return refuse(Code::BAD_PARAMETER, Id::requant_addr);
        if (!read_operands(sram, i.operand_addr, kind == isa::EltwiseKind::AFFINE, i.bias_addr, block, operands))
            return refuse(Code::BAD_PARAMETER, Id::operand_addr);
        for (uint32_t y = 0; y < i.out_h; ++y) {
            NPU_TRIPCOUNT(1, 416)
            for (uint32_t x = 0; x < i.out_w; ++x) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, 416)
                int8_t a[LANES];
                int8_t b[LANES];
                int64_t d[LANES];
                int8_t word[LANES];
                NPU_PARTITION(a, 1)
                NPU_PARTITION(b, 1)
                NPU_PARTITION(d, 1)
                NPU_PARTITION(word, 1)
                sram_read(sram, input_address(i, (int32_t)y, (int32_t)x) + (uint32_t)LANES * block, a);
                read_second(sram, i, y, x, block, b);
                combine(kind, a, b, operands, d);
                apply_stage(d, parameters, settings, word);
                sram_write(sram, output_address(i, y, x) + (uint32_t)LANES * block, word);
            }
        }
    }
    return Status();
}

}  // namespace hls
}  // namespace npuforge
