// Owns the refusal of illegal instructions: opcode, reserved bits, fields, alignment, bounds. The result is the decoded
// operation.
#pragma once

#include <cstddef>
#include <variant>

#include "bf16_operation.hpp"
#include "operation.hpp"

namespace npuforge::sim {

struct Limits {
    std::size_t image_bytes = 0, pool_bytes = 0, sram_bytes = 0;
    bool bf16 = false;  ///< the arch has the bf16 engines
    std::size_t of(Space space) const {
        return space == Space::kSram ? sram_bytes : space == Space::kPool ? pool_bytes : image_bytes;
    }
};

struct HaltOp {};
using Operation = std::variant<HaltOp, TransferOp, FoldOp, ConvOp, PoolOp, EltwiseOp, ResizeOp, Bf16ConvOp, Bf16PoolOp,
                               Bf16EltwiseOp, Bf16ResizeOp>;

/// Decodes and checks one instruction (32 words) with global index `index`. InstructionError names index and field.
Operation decode(const std::uint32_t* words, std::size_t index, const Limits& limits);

}  // namespace npuforge::sim
