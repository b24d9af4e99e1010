// Owns the portable engines: any legal instruction on bytes as they are in on-chip memory, 64-bit integers, no SIMD, no
// preparation. They are the scalar level, and the path of instructions whose parameters are not known at load.
#pragma once

#include "operation.hpp"

namespace npuforge::sim::generic {

/// Where a refusal at run time belongs (only parameters that are not known at load are checked then).
struct Origin {
    std::size_t index = 0;
    const char* opcode = "";
};

/// Each handles output rows [row_begin, row_end).
void conv(const ConvOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end);
void pool(const PoolOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end);
void eltwise(const EltwiseOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end);
void resize(const ResizeOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end);
void transfer(const TransferOp& op, const Memory& memory, int row_begin, int row_end);
void fold(const FoldOp& op, const Memory& memory, int row_begin, int row_end);

}  // namespace npuforge::sim::generic
