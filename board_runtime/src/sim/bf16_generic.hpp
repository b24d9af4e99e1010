// Owns the portable engines of the bf16 instructions: no SIMD, no preparation; any legal instruction.
#pragma once

#include "bf16_operation.hpp"
#include "generic.hpp"

namespace npuforge::sim::generic {

/// Each handles output rows [row_begin, row_end).
void conv_bf16(const Bf16ConvOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end);
void pool_bf16(const Bf16PoolOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end);
void eltwise_bf16(const Bf16EltwiseOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end);
void resize_bf16(const Bf16ResizeOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end);

/// A record of a resize table, checked: InstructionError naming the field.
isa::ResizeBf16Record checked_resize_bf16(const Origin& origin, const char* field, const std::uint8_t* records,
                                          std::size_t i, int extent);

}  // namespace npuforge::sim::generic
