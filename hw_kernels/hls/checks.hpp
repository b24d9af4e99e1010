// Refusals: what every instruction must satisfy before its engine touches memory. Names the first offending field.
#pragma once

#include "checks_bf16.hpp"
#include "checks_int8.hpp"

namespace npuforge {
namespace hls {

/// Opcode, reserved bits and all fields of one instruction. What depends on parameter bytes is checked by the engine
/// when it runs.
inline Status check_instruction(const uint32_t words[isa::INSTRUCTION_WORDS], const Limits& l) {
    const uint32_t opcode = isa::opcode_of(words);
    if (!isa::known_opcode(opcode) || (isa::needs_bf16(opcode) && !l.bf16))
        return refuse(Code::UNKNOWN_OPCODE, Id::opcode);
    if (isa::first_reserved_word(words) != isa::INSTRUCTION_WORDS) return refuse(Code::RESERVED_BITS, Id::none);
    switch ((isa::Opcode)opcode) {
        case isa::Opcode::LOAD:
            return check_transfer(isa::Load::decode(words), l, false);
        case isa::Opcode::LOAD_FOLD:
            return check_load_fold(isa::LoadFold::decode(words), l);
        case isa::Opcode::CONV:
            return check_conv(isa::Conv::decode(words), l);
        case isa::Opcode::DEPTHWISE:
            return check_depthwise(isa::Depthwise::decode(words), l);
        case isa::Opcode::POOL:
            return check_pool(isa::Pool::decode(words), l);
        case isa::Opcode::ELTWISE:
            return check_eltwise(isa::Eltwise::decode(words), l);
        case isa::Opcode::RESIZE:
            return check_resize(isa::Resize::decode(words), l);
        case isa::Opcode::COPY:
            return check_copy(isa::Copy::decode(words), l);
        case isa::Opcode::STORE:
            return check_transfer(isa::Store::decode(words), l, true);
        case isa::Opcode::LOAD_FOLD_BF16:
            return check_load_fold_bf16(isa::LoadFoldBf16::decode(words), l);
        case isa::Opcode::CONV_BF16:
            return check_conv_bf16(isa::ConvBf16::decode(words), l);
        case isa::Opcode::DEPTHWISE_BF16:
            return check_depthwise_bf16(isa::DepthwiseBf16::decode(words), l);
        case isa::Opcode::POOL_BF16:
            return check_pool_bf16(isa::PoolBf16::decode(words), l);
        case isa::Opcode::ELTWISE_BF16:
            return check_eltwise_bf16(isa::EltwiseBf16::decode(words), l);
        case isa::Opcode::RESIZE_BF16:
            return check_resize_bf16(isa::ResizeBf16::decode(words), l);
        default:
            return Status();
    }
}

}  // namespace hls
}  // namespace npuforge
