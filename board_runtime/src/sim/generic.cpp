// Owns the portable engines (see generic.hpp).
#include "generic.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "records.hpp"
#include "stage.hpp"

namespace npuforge::sim::generic {
namespace {

constexpr int kLanes = 16;

// Stage parameters of the 16 lanes of one block.
struct BlockStage {
    const StageOp& op;
    const std::uint8_t* table;
    isa::RequantRecord q[kLanes];

    BlockStage(const StageOp& stage, const Origin& origin, const std::uint8_t* sram, int block,
               const char* field = "requant_addr")
        : op(stage), table(sram + stage.table_address) {
        for (int o = 0; o < kLanes; ++o)
            q[o] = checked_requant(origin, stage.kind, sram + stage.requant_address,
                                   static_cast<std::size_t>(block) * kLanes + o, field);
    }
    std::int8_t operator()(int lane, std::int64_t acc) const { return apply_stage(op, q[lane], table, acc); }
};

// The residual stage of one block: what the convolution gives, and the skip tensor.
struct BlockSum {
    BlockStage stage;
    isa::OperandRecord p[kLanes];

    BlockSum(const EltwiseOp& sum, const Origin& origin, const std::uint8_t* sram, int block)
        : stage(sum.stage, origin, sram, block, "sum_requant_addr") {
        for (int o = 0; o < kLanes; ++o)
            p[o] = checked_operand(origin, sram + sum.operand_address, static_cast<std::size_t>(block) * kLanes + o);
    }
    std::int8_t operator()(int lane, std::int8_t a, std::int8_t b) const {
        const std::int64_t da = a - p[lane].za, db = b - p[lane].zb;
        return stage(lane, p[lane].ma * da + p[lane].mb * db);
    }
};

std::uint32_t dot(const std::uint8_t* w, const std::uint8_t* x, int count) {
    std::uint32_t sum = 0;
    for (int i = 0; i < count; ++i)
        sum += static_cast<std::uint32_t>(static_cast<std::int8_t>(w[i]) * static_cast<std::int8_t>(x[i]));
    return sum;
}

}  // namespace

void conv(const ConvOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* sram = memory.sram;
    const Window& w = op.window;
    const int channels = op.blocks_in * kLanes;
    const std::size_t taps = static_cast<std::size_t>(w.kernel_h) * w.kernel_w;
    for (int block = 0; block < op.blocks_out; ++block) {
        const BlockStage stage(op.stage, origin, sram, block);
        std::optional<BlockSum> sum;
        if (op.residual) sum.emplace(op.sum, origin, sram, block);
        const std::uint8_t* bias = sram + op.bias_address + static_cast<std::size_t>(block) * 4 * kLanes;
        for (int y = row_begin; y < row_end; ++y) {
            for (int x = 0; x < op.out_w; ++x) {
                std::uint32_t acc[kLanes];  // unsigned: wraps as the hardware's 32-bit accumulator does
                for (int o = 0; o < kLanes; ++o) acc[o] = static_cast<std::uint32_t>(read_i32(bias + 4 * o));
                for (int ky = 0; ky < w.kernel_h; ++ky) {
                    const long iy = window_source(y, w.stride_h, w.pad_top, ky, w.dilation_h);
                    for (int kx = 0; kx < w.kernel_w; ++kx) {
                        const long ix = window_source(x, w.stride_w, w.pad_left, kx, w.dilation_w);
                        const bool inside = iy >= 0 && iy < op.in_h && ix >= 0 && ix < op.in_w;
                        const std::uint8_t* in = sram + (inside ? op.in.at(iy, ix) : op.pad_address);
                        const std::size_t tap = static_cast<std::size_t>(ky) * w.kernel_w + kx;
                        if (op.depthwise) {
                            const std::size_t lane = static_cast<std::size_t>(block) * kLanes;
                            const std::uint8_t* weight = sram + op.weight_address + tap * channels + lane;
                            for (int o = 0; o < kLanes; ++o)
                                acc[o] += static_cast<std::uint32_t>(static_cast<std::int8_t>(weight[o]) *
                                                                     static_cast<std::int8_t>(in[lane + o]));
                        } else {
                            const std::uint8_t* weight = sram + op.weight_address + tap * channels;
                            for (int o = 0; o < kLanes; ++o) {
                                const std::size_t lane = static_cast<std::size_t>(block) * kLanes + o;
                                acc[o] += dot(weight + lane * taps * channels, in, channels);
                            }
                        }
                    }
                }
                const std::size_t at = op.out.at(y, x) + static_cast<std::size_t>(block) * kLanes;
                const std::uint8_t* skip = sram + op.sum.b.at(y, x) + static_cast<std::size_t>(block) * kLanes;
                for (int o = 0; o < kLanes; ++o) {
                    std::int8_t value = stage(o, static_cast<std::int32_t>(acc[o]));
                    if (sum) {
                        if (memory.before_sum != nullptr) memory.before_sum[at + o] = static_cast<std::uint8_t>(value);
                        value = (*sum)(o, value, static_cast<std::int8_t>(skip[o]));
                    }
                    memory.sram[at + o] = static_cast<std::uint8_t>(value);
                }
            }
        }
    }
}

void pool(const PoolOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* sram = memory.sram;
    const Window& w = op.window;
    for (int block = 0; block < op.blocks; ++block) {
        const std::size_t lane = static_cast<std::size_t>(block) * kLanes;
        std::int32_t za[kLanes] = {}, z[kLanes] = {};
        if (op.average) {
            for (int o = 0; o < kLanes; ++o) {
                za[o] = checked_operand(origin, sram + op.operand_address, lane + o).za;
                z[o] = isa::RequantRecord::decode(sram + op.requant_address + 8 * (lane + o)).z;
            }
        }
        for (int y = row_begin; y < row_end; ++y) {
            for (int x = 0; x < op.out_w; ++x) {
                std::int64_t value[kLanes];
                std::fill(value, value + kLanes, op.average ? 0 : -128);
                const TapRange rows = valid_taps(y, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, op.in_h);
                const TapRange cols = valid_taps(x, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, op.in_w);
                const int count = rows.count() * cols.count();
                for (int ky = rows.first; ky < rows.last; ++ky) {
                    const long iy = window_source(y, w.stride_h, w.pad_top, ky, w.dilation_h);
                    for (int kx = cols.first; kx < cols.last; ++kx) {
                        const long ix = window_source(x, w.stride_w, w.pad_left, kx, w.dilation_w);
                        const std::uint8_t* in = sram + op.in.at(iy, ix) + lane;
                        for (int o = 0; o < kLanes; ++o) {
                            const std::int64_t q = static_cast<std::int8_t>(in[o]);
                            value[o] = op.average ? value[o] + q : std::max(value[o], q);
                        }
                    }
                }
                std::uint8_t* out = memory.sram + op.out.at(y, x) + lane;
                if (op.average) {
                    const std::size_t row = op.single ? 0 : static_cast<std::size_t>(count - 1);
                    const std::uint8_t* m = sram + op.weight_address + 2 * (row * op.blocks * kLanes + lane);
                    for (int o = 0; o < kLanes; ++o) {
                        const std::int64_t d = (value[o] - std::int64_t{count} * za[o]) * read_i16(m + 2 * o);
                        value[o] = saturate8(shift_round(d, op.shift) + z[o]);
                    }
                }
                for (int o = 0; o < kLanes; ++o) out[o] = static_cast<std::uint8_t>(value[o]);
            }
        }
    }
}

void eltwise(const EltwiseOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* sram = memory.sram;
    for (int block = 0; block < op.blocks; ++block) {
        const BlockStage stage(op.stage, origin, sram, block);
        const std::size_t lane = static_cast<std::size_t>(block) * kLanes;
        isa::OperandRecord p[kLanes];
        std::int64_t addend[kLanes] = {};
        for (int o = 0; o < kLanes; ++o) {
            p[o] = checked_operand(origin, sram + op.operand_address, lane + o);
            if (op.kind == isa::EltwiseKind::AFFINE) addend[o] = read_i32(sram + op.bias_address + 4 * (lane + o));
        }
        for (int y = row_begin; y < row_end; ++y) {
            for (int x = 0; x < op.out_w; ++x) {
                const std::uint8_t* a = sram + op.a.at(y, x) + lane;
                const std::uint8_t* b = op.kind == isa::EltwiseKind::AFFINE ? a : sram + op.b.at(y, x);
                if (op.kind != isa::EltwiseKind::AFFINE && !op.broadcast_b) b += lane;
                std::uint8_t* out = memory.sram + op.out.at(y, x) + lane;
                std::uint8_t result[kLanes];
                for (int o = 0; o < kLanes; ++o) {
                    const std::int64_t da = static_cast<std::int8_t>(a[o]) - p[o].za;
                    const std::int64_t db = static_cast<std::int8_t>(b[op.broadcast_b ? 0 : o]) - p[o].zb;
                    std::int64_t d = 0;
                    switch (op.kind) {
                        case isa::EltwiseKind::ADD:
                            d = p[o].ma * da + p[o].mb * db;
                            break;
                        case isa::EltwiseKind::SUB:
                            d = p[o].ma * da - p[o].mb * db;
                            break;
                        case isa::EltwiseKind::MUL:
                            d = da * db * p[o].ma;
                            break;
                        case isa::EltwiseKind::AFFINE:
                            d = p[o].ma * da + addend[o];
                            break;
                    }
                    result[o] = static_cast<std::uint8_t>(stage(o, d));
                }
                std::memcpy(out, result, kLanes);
            }
        }
    }
}

void resize(const ResizeOp& op, const Origin& origin, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* sram = memory.sram;
    for (int y = row_begin; y < row_end; ++y) {
        const auto row = checked_resize(origin, "row_table_addr", sram + op.row_table_address, y, op.in_h);
        for (int x = 0; x < op.out_w; ++x) {
            const auto col = checked_resize(origin, "col_table_addr", sram + op.col_table_address, x, op.in_w);
            const std::uint8_t* in[4] = {sram + op.in.at(row.i0, col.i0), sram + op.in.at(row.i0, col.i1),
                                         sram + op.in.at(row.i1, col.i0), sram + op.in.at(row.i1, col.i1)};
            const std::int32_t weight[4] = {(256 - row.w1) * (256 - col.w1), (256 - row.w1) * col.w1,
                                            row.w1 * (256 - col.w1), row.w1 * col.w1};
            std::uint8_t* out = memory.sram + op.out.at(y, x);
            for (int lane = 0; lane < op.blocks * kLanes; ++lane) {
                std::int32_t sum = 1 << 15;
                for (int k = 0; k < 4; ++k) sum += weight[k] * static_cast<std::int8_t>(in[k][lane]);
                out[lane] = static_cast<std::uint8_t>(sum >> 16);
            }
        }
    }
}

void transfer(const TransferOp& op, const Memory& memory, int row_begin, int row_end) {
    std::uint8_t* destination = op.to_space == Space::kPool ? memory.pool : memory.sram;
    const std::uint8_t* source = memory.source(op.from_space);
    for (int y = row_begin; y < row_end; ++y) {
        for (int x = 0; x < op.cols; ++x)
            std::memmove(destination + op.to.at(y, x), source + op.from.at(y, x), op.chunk);
    }
}

void fold(const FoldOp& op, const Memory& memory, int row_begin, int row_end) {
    const std::uint8_t* source = memory.source(op.from_space) + op.address;
    const Window& w = op.window;
    const std::size_t lanes = static_cast<std::size_t>(op.out_bytes);
    const std::size_t tap_bytes =
        static_cast<std::size_t>(w.kernel_w) * op.pixel_bytes;  // one kernel row, contiguous in the image
    for (int y = row_begin; y < row_end; ++y) {
        for (int x = 0; x < op.out_w; ++x) {
            std::uint8_t* out = memory.sram + op.out.at(y, x);
            std::uint8_t* lane = out;
            const long ix = window_source(x, w.stride_w, w.pad_left, 0, 1);
            for (int ky = 0; ky < w.kernel_h; ++ky) {
                const long iy = window_source(y, w.stride_h, w.pad_top, ky, 1);
                if (iy >= 0 && iy < op.in_h && ix >= 0 && ix + w.kernel_w <= op.in_w) {
                    std::memcpy(lane, source + iy * op.row_stride + ix * op.pixel_bytes, tap_bytes);
                    lane += tap_bytes;
                    continue;
                }
                for (int kx = 0; kx < w.kernel_w; ++kx) {
                    const bool inside = iy >= 0 && iy < op.in_h && ix + kx >= 0 && ix + kx < op.in_w;
                    for (int c = 0; c < op.pixel_bytes; ++c)
                        *lane++ = inside ? source[iy * op.row_stride + (ix + kx) * op.pixel_bytes + c] : op.pad[c];
                }
            }
            std::fill(lane, out + lanes, std::uint8_t{0});
        }
    }
}

}  // namespace npuforge::sim::generic
