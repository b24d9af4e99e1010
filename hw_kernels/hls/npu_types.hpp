// Common types of the engines: lanes, limits of the configuration, refusals, and access to the on-chip memory.
#pragma once

#include "npu_isa.hpp"
#include "npu_port.hpp"

#ifndef NPU_BF16
#define NPU_BF16 1  // 0 for an arch without the feature: its engines are then left out
#endif

namespace npuforge {
namespace hls {

constexpr bool HAS_BF16 = NPU_BF16 != 0;

constexpr int LANES = 16;             ///< channels of a block, bytes of an SRAM word
constexpr int TABLE_ENTRIES = 257;    ///< int16 entries of an activation table
constexpr int MAX_SHIFT = 47;         ///< largest right shift of a requantisation
constexpr int MIN_FRACTION_BITS = 5;  ///< smallest F of a table stage
constexpr int MAX_FRACTION_BITS = 11;

/// Why an instruction or a program was refused.
enum class Code : uint32_t {
    OK = 0,
    UNKNOWN_OPCODE = 1,
    RESERVED_BITS = 2,    ///< a bit that the opcode does not use is set
    ILLEGAL_VALUE = 3,    ///< a field value that the engine does not have
    MISALIGNED = 4,       ///< an address or stride that is no multiple of 16
    OUT_OF_BOUNDS = 5,    ///< a range that leaves SRAM or the DDR region
    BAD_PARAMETER = 6,    ///< a parameter record in SRAM with an illegal value; `field` is its address field
    NO_HALT = 7,          ///< the program does not end with HALT
    EARLY_HALT = 8,       ///< HALT before the last instruction
    DEADLOCK = 9,         ///< every engine waits for a token that nobody will give
    TOKEN_OVERFLOW = 10,  ///< more than 65,535 tokens of one pair of engines waiting
    TOKEN_LEFT = 11       ///< a token that nobody has taken at the end: the next program would take it
};

/// Result of a check or of a run. `instruction` is relative to the first one of the program.
struct Status {
    Code code = Code::OK;
    isa::FieldId field = isa::FieldId::none;
    uint32_t instruction = 0;
};

inline Status refuse(Code code, isa::FieldId field) {
    Status status;
    status.code = code;
    status.field = field;
    return status;
}

/// Sizes and features an instruction is checked against.
struct Limits {
    uint32_t sram_bytes = 0;
    uint32_t bin_bytes = 0;   ///< DDR region 0
    uint32_t pool_bytes = 0;  ///< DDR region 1
    bool bf16 = HAS_BF16;     ///< the arch has the bf16 engines
};

/// On-chip memory is an array of 16-byte words; every function gets it as `int8_t sram[][LANES]`. Byte b is word b/16,
/// lane b%16.
inline int8_t sram_byte(const int8_t sram[][LANES], uint32_t address) {
    NPU_INLINE
    return sram[address >> 4][address & 15u];
}

/// Little-endian int16 at an even address.
inline int32_t sram_int16(const int8_t sram[][LANES], uint32_t address) {
    NPU_INLINE
    const uint32_t low = (uint8_t)sram_byte(sram, address);
    const uint32_t high = (uint8_t)sram_byte(sram, address + 1u);
    return isa::sign_extend(low | (high << 8), 16);
}

/// Little-endian int32 at an address that is a multiple of 4.
inline int32_t sram_int32(const int8_t sram[][LANES], uint32_t address) {
    NPU_INLINE
    uint32_t value = 0;
    NPU_UNROLL_NEXT
    for (uint32_t k = 0; k < 4u; ++k) {
        NPU_UNROLL
        value |= (uint32_t)(uint8_t)sram_byte(sram, address + k) << (8u * k);
    }
    return (int32_t)value;
}

/// One 16-byte word; `address` is a multiple of 16.
inline void sram_read(const int8_t sram[][LANES], uint32_t address, int8_t word[LANES]) {
    NPU_INLINE
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        word[lane] = sram[address >> 4][lane];
    }
}

inline void sram_write(int8_t sram[][LANES], uint32_t address, const int8_t word[LANES]) {
    NPU_INLINE
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        sram[address >> 4][lane] = word[lane];
    }
}

/// A parameter record of 8 bytes as bytes; `address` is a multiple of 8.
inline void sram_record(const int8_t sram[][LANES], uint32_t address, uint8_t bytes[8]) {
    NPU_INLINE
    NPU_UNROLL_NEXT
    for (uint32_t k = 0; k < 8u; ++k) {
        NPU_UNROLL
        bytes[k] = (uint8_t)sram_byte(sram, address + k);
    }
}

/// int32 per lane, 64 bytes.
inline void sram_bias(const int8_t sram[][LANES], uint32_t address, int32_t bias[LANES]) {
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_PIPELINE
        bias[lane] = sram_int32(sram, address + 4u * lane);
    }
}

}  // namespace hls
}  // namespace npuforge
