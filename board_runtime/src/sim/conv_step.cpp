// Owns convolution steps for SIMD levels (see conv_step.hpp).
#include "conv_step.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "stage.hpp"
#include "vector_step.hpp"

namespace npuforge::sim {
namespace {

constexpr std::size_t kScratchTarget = 96 * 1024;  // activations of a piece of work stay in the second-level cache
constexpr std::size_t kScratchLimit = 32 * 1024 * 1024;

std::shared_ptr<const ConvPack> make_pack(const ConvOp& op, const Constants& constants, const ConvKernel& kernel,
                                          std::size_t row_bytes) {
    auto pack = std::make_shared<ConvPack>();
    const Window& w = op.window;
    const int lanes_in = 16 * op.blocks_in, taps = w.kernel_h * w.kernel_w, lanes_out = 16 * op.blocks_out;
    const std::size_t groups = static_cast<std::size_t>(taps) * lanes_in / kernel.group;
    // Groups of input lanes that any output lane uses.
    std::vector<bool> used(groups, false);
    for (std::size_t i = 0; i < op.weight_bytes(); ++i)
        if (constants.weight[i] != 0) used[i / kernel.group % groups] = true;
    std::size_t kept = 0;
    for (std::size_t g = 0; g < groups; ++g) {
        if (!used[g]) continue;
        ++kept;
        const int tap = static_cast<int>(g * kernel.group) / lanes_in,
                  lane = static_cast<int>(g * kernel.group) % lanes_in;
        if (g > 0 && used[g - 1] && lane != 0) {
            ++pack->runs.back().groups;
            continue;
        }
        const std::size_t pixel = static_cast<std::size_t>(tap % w.kernel_w) * w.dilation_w * lanes_in + lane;
        const std::size_t row = static_cast<std::size_t>(tap / w.kernel_w) * w.dilation_h * row_bytes;
        pack->runs.push_back({static_cast<std::uint32_t>(row + pixel * kernel.lane_bytes), 1});
    }
    pack->block_stride = kept * 16 * kernel.group * kernel.lane_bytes;
    pack->weights.resize(pack->block_stride * op.blocks_out / 64 + 1);
    pack->bias.resize(static_cast<std::size_t>(lanes_out));
    pack->half.assign(static_cast<std::size_t>(op.blocks_out), 1);
    std::vector<double> bound(static_cast<std::size_t>(lanes_out));
    auto* bytes = reinterpret_cast<std::uint8_t*>(pack->weights.data());
    // Vector order: with 16-lane vectors one vector, with 8-lane vectors two, which the lane map lists one after the
    // other.
    const int vectors = kernel.lane_bytes == 2 ? 2 : 1;
    for (int block = 0; block < op.blocks_out; ++block) {
        for (int i = 0; i < 16; ++i) {
            const int lane = (*kernel.lanes)[i / (16 / vectors)][i % (16 / vectors)];
            const std::size_t o = static_cast<std::size_t>(block) * 16 + lane;
            const std::uint8_t* source = constants.weight + o * taps * lanes_in;
            std::int64_t sum = 0, magnitude = 0;
            std::size_t position =
                block * pack->block_stride / kernel.lane_bytes + static_cast<std::size_t>(i) * kernel.group;
            for (std::size_t g = 0; g < groups; ++g) {
                if (!used[g]) continue;
                for (int k = 0; k < kernel.group; ++k) {
                    const auto value = static_cast<std::int8_t>(source[g * kernel.group + k]);
                    sum += value;
                    magnitude += std::abs(static_cast<int>(value));
                    if (kernel.lane_bytes == 2) {
                        const auto wide = static_cast<std::int16_t>(value);
                        std::memcpy(bytes + 2 * (position + k), &wide, 2);
                    } else {
                        bytes[position + k] = static_cast<std::uint8_t>(value);
                    }
                }
                position += 16 * static_cast<std::size_t>(kernel.group);
            }
            if (i >= 8 && magnitude != 0) pack->half[static_cast<std::size_t>(block)] = 0;
            const std::int32_t bias = read_i32(constants.bias + 4 * o);
            // The sum over (q + 128)*w exceeds the wanted one by 128*sum; 32-bit sums wrap, so the correction is exact
            // in any case.
            const std::int64_t corrected = kernel.offset128 ? bias - 128 * sum : bias;
            pack->bias[static_cast<std::size_t>(block) * 16 + i] =
                static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::uint64_t>(corrected)));
            bound[o] = std::abs(static_cast<double>(bias)) + 128.0 * static_cast<double>(magnitude);
        }
    }
    make_stage(pack->stage, op.stage, constants, op.blocks_out, bound, *kernel.lanes);
    pack->pad.resize(static_cast<std::size_t>(lanes_in) * kernel.lane_bytes);
    kernel.expand(pack->pad.data(), constants.pad, 0, 1, lanes_in);
    return pack;
}

class ConvStep : public Step {
  public:
    /// `sum`: of a residual stage, else null. The convolution's rows then go to scratch, and from there into the sum.
    ConvStep(const ConvOp& op, const ConvKernel& kernel, std::unique_ptr<const EltwiseRows> sum, double sum_cycles)
        : op_(op), kernel_(kernel), sum_(std::move(sum)) {
        const Window& w = op.window;
        pixel_bytes_ = static_cast<std::size_t>(16) * op.blocks_in * kernel.lane_bytes;
        const bool point = w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1 && w.pad_top == 0 &&
                           w.pad_left == 0 && op.out_w == op.in_w && op.out_h <= op.in_h;
        linear_ = point && op.in.dense(op.out_h, op.out_w) && op.out.dense(op.out_h, op.out_w) &&
                  (!sum_ || op.sum.b.dense(op.out_h, op.out_w));
        if (linear_) {
            units = op.out_h * op.out_w;
            granularity = kernel.tile;
            const int fitting = static_cast<int>(kScratchTarget / 4 / pixel_bytes_);
            piece_ = std::max(1, fitting / kernel.tile) * kernel.tile;
            row_bytes_ = 0;
            scratch_bytes = static_cast<std::size_t>(std::min(piece_, units)) * pixel_bytes_;
        } else {
            units = op.out_h;
            width_ = static_cast<std::size_t>(op.out_w - 1) * w.stride_w +
                     static_cast<std::size_t>(w.kernel_w - 1) * w.dilation_w + 1;
            row_bytes_ = width_ * pixel_bytes_;
            piece_ = 1;
            while (piece_ < op.out_h && rows_of(piece_ + 1) * row_bytes_ <= kScratchTarget) ++piece_;
            scratch_bytes = rows_of(piece_) * row_bytes_;
        }
        if (sum_) {
            out_offset_ = (scratch_bytes + 63) / 64 * 64;
            scratch_bytes = out_offset_ +
                            static_cast<std::size_t>(linear_ ? std::min(piece_, units) : op.out_w) * out_pixel_bytes();
        }
        const double pixels = static_cast<double>(op.out_h) * op.out_w;
        cost = pixels * (static_cast<double>(op.weight_bytes()) / kernel.macs_per_cycle +
                         16.0 * op.blocks_out * (kernel.stage_cycles + sum_cycles) + op.blocks_in);
    }

    std::size_t row_bytes() const { return row_bytes_; }
    void set_pack(std::shared_ptr<const ConvPack> pack) { pack_ = std::move(pack); }

    void run(const Memory& memory, std::uint8_t* scratch, int begin, int end) const override {
        ConvRow row;
        row.pack = pack_.get();
        row.blocks_in = op_.blocks_in;
        row.blocks_out = op_.blocks_out;
        row.out_step = sum_ ? out_pixel_bytes() : op_.out.pixel_stride;
        for (int at = begin; at < end; at += piece_) {
            const int count = std::min(piece_, end - at);
            if (linear_) {
                kernel_.expand(scratch, memory.sram + op_.in.at(0, static_cast<std::size_t>(at)), op_.in.pixel_stride,
                               count, 16 * op_.blocks_in);
                row.activations = scratch;
                row.activation_step = pixel_bytes_;
                row.pixels = count;
                compute(memory, scratch, row, 0, static_cast<std::size_t>(at));
                continue;
            }
            fill(memory.sram, scratch, at, count);
            row.activation_step = pixel_bytes_ * op_.window.stride_w;
            row.pixels = op_.out_w;
            for (int y = 0; y < count; ++y) {
                row.activations = scratch + static_cast<std::size_t>(y) * op_.window.stride_h * row_bytes_;
                compute(memory, scratch, row, static_cast<std::size_t>(at + y), 0);
            }
        }
    }

  private:
    std::size_t out_pixel_bytes() const { return static_cast<std::size_t>(16) * op_.blocks_out; }

    // The pixels of `row` from (y, x) on.
    void compute(const Memory& memory, std::uint8_t* scratch, ConvRow& row, std::size_t y, std::size_t x) const {
        if (!sum_) {
            row.out = memory.sram + op_.out.at(y, x);
            return kernel_.row(row);
        }
        row.out = scratch + out_offset_;
        kernel_.row(row);
        if (memory.before_sum != nullptr)
            for (int p = 0; p < row.pixels; ++p)
                std::memcpy(memory.before_sum + op_.out.at(y, x + static_cast<std::size_t>(p)),
                            row.out + static_cast<std::size_t>(p) * row.out_step, row.out_step);
        sum_->run(memory, row.out, row.out_step, y, x, row.pixels);
    }

    std::size_t rows_of(int out_rows) const {
        const Window& w = op_.window;
        return static_cast<std::size_t>(out_rows - 1) * w.stride_h +
               static_cast<std::size_t>(w.kernel_h - 1) * w.dilation_h + 1;
    }

    // Input rows of output rows [first, first + count) with their borders, in activation form.
    void fill(const std::uint8_t* sram, std::uint8_t* scratch, int first, int count) const {
        const Window& w = op_.window;
        const std::size_t rows = rows_of(count);
        const long top = window_source(first, w.stride_h, w.pad_top, 0, 1);
        const long width = static_cast<long>(width_);
        const long left = std::min<long>(width, std::max(0, w.pad_left));  // border pixels before the map
        const long inside = std::max<long>(left, std::min<long>(width, static_cast<long>(op_.in_w) + w.pad_left));
        for (std::size_t r = 0; r < rows; ++r) {
            std::uint8_t* to = scratch + r * row_bytes_;
            const long iy = top + static_cast<long>(r);
            if (iy < 0 || iy >= op_.in_h) {
                border(to, 0, width);
                continue;
            }
            border(to, 0, left);
            if (inside > left)
                kernel_.expand(
                    to + static_cast<std::size_t>(left) * pixel_bytes_,
                    sram + op_.in.at(static_cast<std::size_t>(iy), static_cast<std::size_t>(left - w.pad_left)),
                    op_.in.pixel_stride, static_cast<int>(inside - left), 16 * op_.blocks_in);
            border(to, inside, width);
        }
    }

    void border(std::uint8_t* row, long from, long to) const {
        for (long x = from; x < to; ++x)
            std::memcpy(row + static_cast<std::size_t>(x) * pixel_bytes_, pack_->pad.data(), pixel_bytes_);
    }

    ConvOp op_;
    const ConvKernel& kernel_;
    std::unique_ptr<const EltwiseRows> sum_;
    std::shared_ptr<const ConvPack> pack_;
    bool linear_ = false;
    int piece_ = 1;  // units per filling of the scratch rows
    std::size_t pixel_bytes_ = 0, row_bytes_ = 0, width_ = 0;
    std::size_t out_offset_ = 0;  // in scratch: a row of the convolution's output before the sum
};

}  // namespace

std::unique_ptr<Step> make_conv_step(const ConvOp& op, const Constants& constants, PackCache& cache,
                                     const ConvKernel& kernel, const VectorKernel& sums) {
    std::unique_ptr<const EltwiseRows> sum;
    if (op.residual) {
        Constants own;
        own.operand = constants.operand;
        own.requant = constants.sum_requant;
        own.key = constants.key;
        sum = make_eltwise_rows(op.sum, own, cache, sums);
        if (!sum) return nullptr;
    }
    auto step = std::make_unique<ConvStep>(op, kernel, std::move(sum), op.residual ? sums.eltwise_cycles : 0.0);
    if (step->scratch_bytes > kScratchLimit) return nullptr;
    // Bands of a layer share weights and stage; the tap offsets depend on the scratch row.
    std::string key = "conv" + constants.key + std::to_string(step->row_bytes());
    for (int v : {op.blocks_in, op.blocks_out, op.window.kernel_h, op.window.kernel_w, op.window.dilation_h,
                  op.window.dilation_w, static_cast<int>(op.stage.kind), op.stage.fraction_bits,
                  static_cast<int>(op.stage.tail_low_is_input), static_cast<int>(op.stage.tail_high_is_input),
                  op.stage.tail_low, op.stage.tail_high})
        key += "," + std::to_string(v);
    step->set_pack(cache.get<ConvPack>(key, [&] { return make_pack(op, constants, kernel, step->row_bytes()); }));
    return step;
}

}  // namespace npuforge::sim
