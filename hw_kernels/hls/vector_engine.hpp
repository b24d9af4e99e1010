// VECTOR engine: hands each instruction of its queue to the unit that executes it.
#pragma once

#include "bf16_vector.hpp"
#include "depthwise.hpp"
#include "elementwise.hpp"
#include "pooling.hpp"
#include "resize.hpp"

namespace npuforge {
namespace hls {

/// Hands a bf16 instruction that has passed its check to its unit.
inline Status vector_bf16(const uint32_t words[isa::INSTRUCTION_WORDS], int8_t sram[][LANES]) {
    switch ((isa::Opcode)isa::opcode_of(words)) {
        case isa::Opcode::DEPTHWISE_BF16:
            return depthwise_bf16(isa::DepthwiseBf16::decode(words), sram);
        case isa::Opcode::POOL_BF16:
            return pool_bf16(isa::PoolBf16::decode(words), sram);
        case isa::Opcode::ELTWISE_BF16:
            return elementwise_bf16(isa::EltwiseBf16::decode(words), sram);
        case isa::Opcode::RESIZE_BF16:
            return resize_bf16(isa::ResizeBf16::decode(words), sram);
        default:
            return Status();
    }
}

/// Executes one instruction of the vector queue.
inline Status vector_engine(const uint32_t words[isa::INSTRUCTION_WORDS], int8_t sram[][LANES], const Limits& limits) {
    const Status status = check_instruction(words, limits);
    if (status.code != Code::OK) return status;
    switch ((isa::Opcode)isa::opcode_of(words)) {
        case isa::Opcode::DEPTHWISE:
            return depthwise(isa::Depthwise::decode(words), sram);
        case isa::Opcode::POOL:
            return pool(isa::Pool::decode(words), sram);
        case isa::Opcode::ELTWISE:
            return elementwise(isa::Eltwise::decode(words), sram);
        case isa::Opcode::RESIZE:
            return resize(isa::Resize::decode(words), sram);
        case isa::Opcode::COPY:
            return copy(isa::Copy::decode(words), sram);
        default:
            return HAS_BF16 ? vector_bf16(words, sram) : status;
    }
}

}  // namespace hls
}  // namespace npuforge
