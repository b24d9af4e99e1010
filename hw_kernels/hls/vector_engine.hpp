// VECTOR engine: hands each instruction of its queue to the unit that executes it.
#pragma once

#include "depthwise.hpp"
#include "elementwise.hpp"
#include "pooling.hpp"
#include "resize.hpp"

namespace npuforge {
namespace hls {

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
            return status;
    }
}

}  // namespace hls
}  // namespace npuforge
