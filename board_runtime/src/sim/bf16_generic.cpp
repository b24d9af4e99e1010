// Owns the portable engines of the bf16 instructions (see bf16_generic.hpp).
#include "bf16_generic.hpp"

#include <algorithm>
#include <string>

#include "bf16_math.hpp"
#include "refuse.hpp"

namespace npuforge::sim::generic {
namespace {

constexpr int kLanes = 16;

// The stage of one lane, counted over all blocks.
std::uint16_t staged(const Bf16StageOp& op, const std::uint8_t* sram, std::size_t lane, float sum) {
    return bf16::apply_stage(op, sram + op.record_address + isa::Bf16Record::BYTES * lane, sram + op.table_address,
                             sum);
}

// Balanced tree over the products of 16 lanes.
float tree(const std::uint8_t* x, const std::uint8_t* w) {
    float level[kLanes];
    for (int i = 0; i < kLanes; ++i) level[i] = bf16::weigh(bf16::read(x + 2 * i), bf16::read(w + 2 * i));
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int k = 0; k < width; ++k) level[k] = bf16::add(level[2 * k], level[2 * k + 1]);
    return level[0];
}

}  // namespace

void conv_bf16(const Bf16ConvOp& op, const Origin&, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* sram = memory.sram;
    const Window& w = op.window;
    const std::size_t tap_bytes = kBf16Block * op.blocks_in;
    for (int y = row_begin; y < row_end; ++y) {
        for (int x = 0; x < op.out_w; ++x) {
            for (int lane = 0; lane < kLanes * op.blocks_out; ++lane) {
                const auto o = static_cast<std::size_t>(lane);
                float acc = 0.0f;
                for (int ky = 0; ky < w.kernel_h; ++ky) {
                    const long iy = window_source(y, w.stride_h, w.pad_top, ky, w.dilation_h);
                    for (int kx = 0; kx < w.kernel_w; ++kx) {
                        const long ix = window_source(x, w.stride_w, w.pad_left, kx, w.dilation_w);
                        const bool inside = iy >= 0 && iy < op.in_h && ix >= 0 && ix < op.in_w;
                        const std::size_t tap = static_cast<std::size_t>(ky) * w.kernel_w + kx;
                        const std::uint8_t* in = inside ? sram + op.in.at(iy, ix) : nullptr;
                        if (op.depthwise) {
                            const std::uint8_t* weight = sram + op.weight_address + tap * tap_bytes + 2 * o;
                            const float product =
                                inside ? bf16::weigh(bf16::read(in + 2 * o), bf16::read(weight)) : 0.0f;
                            acc = bf16::add(acc, product);
                            continue;
                        }
                        const std::uint8_t* weight = sram + op.weight_address + (o * op.taps() + tap) * tap_bytes;
                        for (std::size_t at = 0; at < tap_bytes; at += kBf16Block)
                            acc = bf16::add(acc, inside ? tree(in + at, weight + at) : 0.0f);
                    }
                }
                bf16::write(memory.sram + op.out.at(y, x) + 2 * o, staged(op.stage, sram, o, acc));
            }
        }
    }
}

void pool_bf16(const Bf16PoolOp& op, const Origin&, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* sram = memory.sram;
    const Window& w = op.window;
    for (int y = row_begin; y < row_end; ++y) {
        const TapRange rows = valid_taps(y, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, op.in_h);
        for (int x = 0; x < op.out_w; ++x) {
            const TapRange cols = valid_taps(x, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, op.in_w);
            const auto count = static_cast<std::size_t>(rows.count() * cols.count());
            for (int lane = 0; lane < kLanes * op.blocks; ++lane) {
                float sum = 0.0f;
                std::uint16_t largest = 0xff80;  // minus infinity
                for (int ky = rows.first; ky < rows.last; ++ky) {
                    const long iy = window_source(y, w.stride_h, w.pad_top, ky, w.dilation_h);
                    for (int kx = cols.first; kx < cols.last; ++kx) {
                        const long ix = window_source(x, w.stride_w, w.pad_left, kx, w.dilation_w);
                        const float value = bf16::read(sram + op.in.at(iy, ix) + 2 * lane);
                        const std::uint16_t bits = bf16::round(value);
                        sum = bf16::add(sum, value);
                        if (bf16::key(bits) > bf16::key(largest)) largest = bits;
                    }
                }
                if (op.average) {
                    const std::size_t entry = op.single ? 0 : count - 1;
                    largest = bf16::round(bf16::multiply(sum, bf16::read_float(sram + op.weight_address + 4 * entry)));
                }
                bf16::write(memory.sram + op.out.at(y, x) + 2 * lane, largest);
            }
        }
    }
}

void eltwise_bf16(const Bf16EltwiseOp& op, const Origin&, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* sram = memory.sram;
    for (int y = row_begin; y < row_end; ++y) {
        for (int x = 0; x < op.out_w; ++x) {
            const std::uint8_t* a = sram + op.a.at(y, x);
            const std::uint8_t* b = sram + op.b.at(y, x);
            for (int lane = 0; lane < kLanes * op.blocks; ++lane) {
                const float left = bf16::read(a + 2 * lane);
                float d = 0.0f;
                if (op.kind == isa::EltwiseKind::AFFINE) {
                    d = bf16::multiply(left, bf16::read_float(sram + op.operand_address + 4 * lane));
                } else {
                    const float right = bf16::read(b + (op.broadcast_b ? 0 : 2 * lane));
                    d = op.kind == isa::EltwiseKind::MUL   ? bf16::multiply(left, right)
                        : op.kind == isa::EltwiseKind::SUB ? bf16::add(left, -right)
                                                           : bf16::add(left, right);
                }
                bf16::write(memory.sram + op.out.at(y, x) + 2 * lane,
                            staged(op.stage, sram, static_cast<std::size_t>(lane), d));
            }
        }
    }
}

isa::ResizeBf16Record checked_resize_bf16(const Origin& origin, const char* field, const std::uint8_t* records,
                                          std::size_t i, int extent) {
    const auto r = isa::ResizeBf16Record::decode(records + i * isa::ResizeBf16Record::BYTES);
    for (const int source : {r.i0, r.i1}) {
        if (source < 0 || source >= extent)
            refuse(origin.index, origin.opcode, field,
                   "a source of 0.." + std::to_string(extent - 1) + " in record " + std::to_string(i), source);
    }
    if (r.w1 > 0x3f800000u)
        refuse(origin.index, origin.opcode, field,
               "expected a weight of 0..1 in record " + std::to_string(i) + ", found " +
                   std::to_string(bf16::from_bits(r.w1)));
    return r;
}

void resize_bf16(const Bf16ResizeOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* sram = memory.sram;
    for (int y = row_begin; y < row_end; ++y) {
        const auto row = checked_resize_bf16(origin, "row_table_addr", sram + op.row_table_address, y, op.in_h);
        for (int x = 0; x < op.out_w; ++x) {
            const auto col = checked_resize_bf16(origin, "col_table_addr", sram + op.col_table_address, x, op.in_w);
            const float wy = bf16::flush(bf16::from_bits(row.w1)), wx = bf16::flush(bf16::from_bits(col.w1));
            for (int lane = 0; lane < kLanes * op.blocks; ++lane) {
                const auto at = [&](int i, int j) { return bf16::read(sram + op.in.at(i, j) + 2 * lane); };
                const float upper = bf16::mix(at(row.i0, col.i0), at(row.i0, col.i1), wx);
                const float lower = bf16::mix(at(row.i1, col.i0), at(row.i1, col.i1), wx);
                bf16::write(memory.sram + op.out.at(y, x) + 2 * lane, bf16::round(bf16::mix(upper, lower, wy)));
            }
        }
    }
}

}  // namespace npuforge::sim::generic
