// Owns element-wise, pooling and resize steps for SIMD levels (see vector_step.hpp).
#include "vector_step.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "stage.hpp"

namespace npuforge::sim {
namespace {

constexpr double kWraps = 2147483648.0;  // 2^31
constexpr std::size_t kScratchLimit = 32 * 1024 * 1024;

// Null where a value could leave 32 bits.
std::shared_ptr<const EltwisePack> make_pack(const EltwiseOp& op, const Constants& constants) {
    auto pack = std::make_shared<EltwisePack>();
    const int lanes = 16 * op.blocks;
    const bool affine = op.kind == isa::EltwiseKind::AFFINE;
    pack->product = op.kind == isa::EltwiseKind::MUL;
    // A product with the direct stage is scaled by Ma*2^-S in one step, which keeps its accumulator small enough for
    // single precision.
    const bool scaled = pack->product && op.stage.kind == isa::Stage::DIRECT;
    pack->sets.resize(static_cast<std::size_t>(op.blocks));
    std::vector<double> bound(static_cast<std::size_t>(lanes)), scale(static_cast<std::size_t>(lanes), 1.0);
    for (int lane = 0; lane < lanes; ++lane) {
        const auto r = isa::OperandRecord::decode(constants.operand + lane * isa::OperandRecord::BYTES);
        const int mb = affine ? 0 : op.kind == isa::EltwiseKind::SUB ? -r.mb : r.mb;
        if (!pack->product && mb > 32767) return nullptr;
        const double reach_a = std::max(127 - r.za, r.za + 128), reach_b = std::max(127 - r.zb, r.zb + 128);
        const std::int32_t addend = affine ? read_i32(constants.bias + 4 * lane) : 0;
        double& limit = bound[static_cast<std::size_t>(lane)];
        limit = pack->product
                    ? reach_a * reach_b * (scaled ? 1 : std::abs(r.ma))
                    : reach_a * std::abs(r.ma) + reach_b * std::abs(mb) + std::abs(static_cast<double>(addend));
        if (limit >= kWraps) return nullptr;
        if (scaled) scale[static_cast<std::size_t>(lane)] = r.ma;
        EltwiseSet& set = pack->sets[static_cast<std::size_t>(lane / 16)];
        for (int j = 0; j < 2; ++j) {
            for (int e = 0; e < 16; ++e) {
                if (unpacked_lanes()[static_cast<std::size_t>(j)][static_cast<std::size_t>(e)] != lane % 16) continue;
                set.multipliers[j][e] = pack->product
                                            ? (scaled ? 1 : r.ma)
                                            : static_cast<std::int32_t>(static_cast<std::uint32_t>(mb & 0xffff) << 16 |
                                                                        static_cast<std::uint32_t>(r.ma & 0xffff));
                set.addend[j][e] = addend;
            }
        }
        for (int half : {0, 16}) {
            set.zero_a[half + lane % 16] = static_cast<std::int16_t>(r.za);
            set.zero_b[half + lane % 16] = static_cast<std::int16_t>(affine ? 0 : r.zb);
        }
    }
    // The integer stage knows nothing of the scale: with it, only the exact single-precision stage will do.
    make_stage(pack->stage, op.stage, constants, op.blocks, bound, unpacked_lanes(), scaled ? scale.data() : nullptr);
    if (scaled && pack->stage.kind == StageKind::kInteger) return nullptr;
    return pack;
}

class EltwiseStep : public Step {
  public:
    EltwiseStep(std::unique_ptr<const EltwiseRows> rows, double cycles) : rows_(std::move(rows)) {
        const EltwiseOp& op = rows_->op();
        linear_ = op.a.dense(op.out_h, op.out_w) && op.b.dense(op.out_h, op.out_w) && op.out.dense(op.out_h, op.out_w);
        units = linear_ ? op.out_h * op.out_w : op.out_h;
        granularity = linear_ ? 8 : 1;
        cost = 16.0 * op.blocks * op.out_h * op.out_w * cycles;
    }

    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        if (linear_) return rows_->run(memory, 0, static_cast<std::size_t>(begin), end - begin);
        for (int y = begin; y < end; ++y) rows_->run(memory, static_cast<std::size_t>(y), 0, rows_->op().out_w);
    }

  private:
    std::unique_ptr<const EltwiseRows> rows_;
    bool linear_ = false;
};

// Separable: the maximum over rows first, then over columns.
class MaxPoolStep : public Step {
  public:
    MaxPoolStep(const PoolOp& op, const VectorKernel& kernel)
        : op_(op), kernel_(kernel), rows_(op.in, op.in_h, op.in_w, op.window, op.out_w, 16, 8) {
        units = op.out_h;
        while (piece_ < op.out_h && rows_.rows_of(piece_ + 1) * rows_.row_bytes() <= 24 * 1024) ++piece_;
        row_offset_ = rows_.rows_of(piece_) * rows_.row_bytes();
        scratch_bytes = row_offset_ + rows_.row_bytes();
        for (int kx = 0; kx < op.window.kernel_w; ++kx) columns_.push_back(rows_.tap_offset(0, kx));
        cost = 2.0 * op.blocks * op.out_h * op.out_w * (op.window.kernel_h + op.window.kernel_w);
    }

    void run(const Memory& memory, std::uint8_t* scratch, int begin, int end) const override {
        std::uint8_t pad[16];
        std::memset(pad, 0x80, sizeof pad);
        std::uint8_t* maxima = scratch + row_offset_;
        for (int at = begin; at < end; at += piece_) {
            const int count = std::min(piece_, end - at);
            for (int block = 0; block < op_.blocks; ++block) {
                rows_.fill(memory.sram, block, scratch, at, count, pad, copy);
                for (int y = 0; y < count; ++y) {
                    kernel_.max_rows(maxima,
                                     scratch + static_cast<std::size_t>(y) * op_.window.stride_h * rows_.row_bytes(),
                                     rows_.row_bytes() * op_.window.dilation_h, op_.window.kernel_h, rows_.row_bytes());
                    kernel_.max_columns(memory.sram + op_.out.at(static_cast<std::size_t>(at + y), 0) + 16 * block,
                                        op_.out.pixel_stride, maxima, columns_.data(), op_.window.kernel_w, op_.out_w);
                }
            }
        }
    }

  private:
    static void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t step, int pixels, int) {
        for (int p = 0; p < pixels; ++p) std::memcpy(to + 16 * p, from + step * p, 16);
    }

    PoolOp op_;
    const VectorKernel& kernel_;
    PhaseRows rows_;
    std::vector<std::uint32_t> columns_;
    int piece_ = 1;
    std::size_t row_offset_ = 0;
};

class AveragePoolStep : public Step {
  public:
    AveragePoolStep(const PoolOp& op, const VectorKernel& kernel, std::shared_ptr<const AveragePack> pack)
        : op_(op), kernel_(kernel), pack_(std::move(pack)) {
        units = op.out_h;
        cost =
            2.0 * op.blocks * op.out_h * op.out_w * (4 + static_cast<double>(op.window.kernel_h) * op.window.kernel_w);
    }

    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        const Window& w = op_.window;
        AveragePixel pixel;
        pixel.row_step = static_cast<std::size_t>(op_.in.row_stride) * w.dilation_h;
        pixel.col_step = static_cast<std::size_t>(op_.in.pixel_stride) * w.dilation_w;
        pixel.blocks = op_.blocks;
        pixel.pack = pack_.get();
        for (int y = begin; y < end; ++y) {
            const TapRange rows = valid_taps(y, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, op_.in_h);
            const long iy = window_source(y, w.stride_h, w.pad_top, rows.first, w.dilation_h);
            for (int x = 0; x < op_.out_w; ++x) {
                const TapRange cols = valid_taps(x, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, op_.in_w);
                const long ix = window_source(x, w.stride_w, w.pad_left, cols.first, w.dilation_w);
                pixel.in = memory.sram + op_.in.at(static_cast<std::size_t>(iy), static_cast<std::size_t>(ix));
                pixel.rows = rows.count();
                pixel.cols = cols.count();
                const std::size_t count = op_.single ? 0 : static_cast<std::size_t>(pixel.rows) * pixel.cols - 1;
                pixel.multipliers = pack_->multipliers.data() + count * 16 * op_.blocks;
                pixel.out = memory.sram + op_.out.at(static_cast<std::size_t>(y), static_cast<std::size_t>(x));
                kernel_.average(pixel);
            }
        }
    }

  private:
    PoolOp op_;
    const VectorKernel& kernel_;
    std::shared_ptr<const AveragePack> pack_;
};

class ResizeStep : public Step {
  public:
    ResizeStep(const ResizeOp& op, const Constants& constants, const VectorKernel& kernel) : op_(op), kernel_(kernel) {
        units = op.out_h;
        cost = 4.0 * op.blocks * op.out_h * op.out_w;
        for (int y = 0; y < op.out_h; ++y) rows_.push_back(isa::ResizeRecord::decode(constants.rows + 8 * y));
        for (int x = 0; x < op.out_w; ++x) cols_.push_back(isa::ResizeRecord::decode(constants.cols + 8 * x));
        for (const auto& column : cols_) plain_ = plain_ && column.w1 == 0;
    }

    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        ResizeRow row;
        row.pixels = op_.out_w;
        row.blocks = op_.blocks;
        row.columns = cols_.data();
        row.in_step = op_.in.pixel_stride;
        row.out_step = op_.out.pixel_stride;
        for (int y = begin; y < end; ++y) {
            const isa::ResizeRecord& r = rows_[static_cast<std::size_t>(y)];
            row.above = memory.sram + op_.in.at(static_cast<std::size_t>(r.i0), 0);
            row.below = memory.sram + op_.in.at(static_cast<std::size_t>(r.i1), 0);
            row.weight = r.w1;
            row.out = memory.sram + op_.out.at(static_cast<std::size_t>(y), 0);
            if (!plain_ || r.w1 != 0) {
                kernel_.resize(row);
                continue;
            }
            // Weights 256 and 0: the sum is 2^16 times the source byte.
            for (int x = 0; x < op_.out_w; ++x) {
                const std::uint8_t* from =
                    row.above + static_cast<std::size_t>(cols_[static_cast<std::size_t>(x)].i0) * row.in_step;
                std::uint8_t* to = row.out + static_cast<std::size_t>(x) * row.out_step;
                for (int block = 0; block < op_.blocks; ++block) std::memcpy(to + 16 * block, from + 16 * block, 16);
            }
        }
    }

  private:
    ResizeOp op_;
    const VectorKernel& kernel_;
    std::vector<isa::ResizeRecord> rows_, cols_;
    bool plain_ = true;
};

}  // namespace

void EltwiseRows::run(const Memory& memory, const std::uint8_t* a, std::size_t a_step, std::size_t y, std::size_t x,
                      int pixels) const {
    EltwiseRow row;
    row.pack = pack_.get();
    row.a_step = a_step;
    row.b_step = op_.b.pixel_stride;
    row.out_step = op_.out.pixel_stride;
    row.broadcast_b = op_.broadcast_b;
    row.pixels = pixels;
    for (row.block = 0; row.block < op_.blocks; ++row.block) {
        const std::size_t lane = 16 * static_cast<std::size_t>(row.block);
        row.a = a + lane;
        row.b = memory.sram + op_.b.at(y, x) + (op_.broadcast_b ? 0 : lane);
        row.out = memory.sram + op_.out.at(y, x) + lane;
        kernel_.eltwise(row);
    }
}

std::unique_ptr<const EltwiseRows> make_eltwise_rows(const EltwiseOp& op, const Constants& constants, PackCache& cache,
                                                     const VectorKernel& kernel) {
    std::string key = "eltwise" + constants.key;
    for (int v : {static_cast<int>(op.kind), op.blocks, static_cast<int>(op.stage.kind), op.stage.fraction_bits,
                  static_cast<int>(op.stage.tail_low_is_input), static_cast<int>(op.stage.tail_high_is_input),
                  op.stage.tail_low, op.stage.tail_high})
        key += "," + std::to_string(v);
    auto pack = cache.get<EltwisePack>(key, [&] { return make_pack(op, constants); });
    if (!pack) return nullptr;
    EltwiseOp whole = op;
    if (op.kind == isa::EltwiseKind::AFFINE) whole.b = op.a;
    return std::make_unique<const EltwiseRows>(whole, kernel, std::move(pack));
}

std::unique_ptr<Step> make_eltwise_step(const EltwiseOp& op, const Constants& constants, PackCache& cache,
                                        const VectorKernel& kernel) {
    auto rows = make_eltwise_rows(op, constants, cache, kernel);
    return rows ? std::make_unique<EltwiseStep>(std::move(rows), kernel.eltwise_cycles) : nullptr;
}

std::unique_ptr<Step> make_pool_step(const PoolOp& op, const Constants& constants, PackCache& cache,
                                     const VectorKernel& kernel) {
    if (!op.average) {
        auto step = std::make_unique<MaxPoolStep>(op, kernel);
        return step->scratch_bytes <= kScratchLimit ? std::move(step) : nullptr;
    }
    const int lanes = 16 * op.blocks;
    // |sum of n terms q - za| <= 255 n; exact in single precision up to 2^24, and the scaled value must stay below
    // 2^31.
    const std::size_t taps = static_cast<std::size_t>(op.window.kernel_h) * op.window.kernel_w;
    const double reach = 255.0 * static_cast<double>(taps);
    if (reach > 16777216.0 || std::ldexp(reach, 15 - op.shift) >= kWraps - 512) return nullptr;
    int counts = 1;
    if (!op.single) {
        int rows = 0, cols = 0;
        const Window& w = op.window;
        for (int y = 0; y < op.out_h; ++y)
            rows = std::max(rows, valid_taps(y, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, op.in_h).count());
        for (int x = 0; x < op.out_w; ++x)
            cols = std::max(cols, valid_taps(x, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, op.in_w).count());
        counts = rows * cols;
    }
    const std::string key = "average" + constants.key + "," + std::to_string(op.blocks) + "," +
                            std::to_string(op.shift) + "," + std::to_string(counts);
    auto pack = cache.get<AveragePack>(key, [&] {
        auto made = std::make_shared<AveragePack>();
        for (int i = 0; i < counts * lanes; ++i)
            made->multipliers.push_back(static_cast<float>(std::ldexp(read_i16(constants.weight + 2 * i), -op.shift)));
        for (int lane = 0; lane < lanes; ++lane) {
            const int z = isa::RequantRecord::decode(constants.requant + 8 * lane).z;
            made->addend.push_back(static_cast<float>(z) + 0.5F);
            made->zero.push_back(isa::OperandRecord::decode(constants.operand + 8 * lane).za);
        }
        return std::shared_ptr<const AveragePack>(made);
    });
    return std::make_unique<AveragePoolStep>(op, kernel, std::move(pack));
}

std::unique_ptr<Step> make_resize_step(const ResizeOp& op, const Constants& constants, const VectorKernel& kernel) {
    return std::make_unique<ResizeStep>(op, constants, kernel);
}

}  // namespace npuforge::sim
