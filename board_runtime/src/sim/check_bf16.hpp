// Owns the checks of the fields of bf16 instructions.
#pragma once

#include "bf16_operation.hpp"
#include "checker.hpp"

namespace npuforge::sim {

FoldOp fold_bf16(const Checker& check, const isa::LoadFoldBf16& i);
/// \tparam T isa::ConvBf16 or isa::DepthwiseBf16 (blocks_in = blocks_out)
template <class T>
Bf16ConvOp conv_bf16(const Checker& check, const T& i, std::uint32_t blocks_in, bool depthwise);
Bf16PoolOp pool_bf16(const Checker& check, const isa::PoolBf16& i);
Bf16EltwiseOp eltwise_bf16(const Checker& check, const isa::EltwiseBf16& i);
Bf16ResizeOp resize_bf16(const Checker& check, const isa::ResizeBf16& i);

}  // namespace npuforge::sim
