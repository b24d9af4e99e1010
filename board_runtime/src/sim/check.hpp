// Owns the refusal of illegal instructions: opcode, reserved bits, fields, alignment, bounds. The result is the decoded
// operation.
#pragma once

#include <cstddef>
#include <variant>

#include "operation.hpp"

namespace npuforge::sim {

struct Limits {
    std::size_t image_bytes = 0, pool_bytes = 0, sram_bytes = 0;
    std::size_t of(Space space) const {
        return space == Space::kSram ? sram_bytes : space == Space::kPool ? pool_bytes : image_bytes;
    }
};

struct HaltOp {};
using Operation = std::variant<HaltOp, TransferOp, FoldOp, ConvOp, PoolOp, EltwiseOp, ResizeOp>;

/// Decodes and checks one instruction (32 words) with global index `index`. InstructionError names index and field.
Operation decode(const std::uint32_t* words, std::size_t index, const Limits& limits);

}  // namespace npuforge::sim
