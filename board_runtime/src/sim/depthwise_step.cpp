// Owns depthwise steps for SIMD levels (see depthwise_step.hpp).
#include "depthwise_step.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "stage.hpp"

namespace npuforge::sim {
namespace {

constexpr std::size_t kScratchTarget = 24 * 1024;  // rows of one block stay in the first-level cache
constexpr std::size_t kScratchLimit = 32 * 1024 * 1024;

}  // namespace

PhaseRows::PhaseRows(const Map& in, int in_h, int in_w, const Window& window, int out_w, std::size_t column_bytes,
                     int spare)
    : in_(in), in_h_(in_h), in_w_(in_w), window_(window), column_bytes_(column_bytes) {
    width_ =
        static_cast<long>(out_w - 1) * window.stride_w + static_cast<long>(window.kernel_w - 1) * window.dilation_w + 1;
    const auto columns = static_cast<std::size_t>((width_ + window.stride_w - 1) / window.stride_w + spare);
    plane_bytes_ = columns * column_bytes;
}

std::size_t PhaseRows::rows_of(int out_rows) const {
    return static_cast<std::size_t>(out_rows - 1) * window_.stride_h +
           static_cast<std::size_t>(window_.kernel_h - 1) * window_.dilation_h + 1;
}

std::uint32_t PhaseRows::tap_offset(int ky, int kx) const {
    const long x = static_cast<long>(kx) * window_.dilation_w;
    return static_cast<std::uint32_t>(static_cast<std::size_t>(ky) * window_.dilation_h * row_bytes() +
                                      static_cast<std::size_t>(x % window_.stride_w) * plane_bytes_ +
                                      static_cast<std::size_t>(x / window_.stride_w) * column_bytes_);
}

void PhaseRows::border(std::uint8_t* row, long from, long to, const std::uint8_t* pad) const {
    for (long x = from; x < to; ++x) std::memcpy(column(row, x), pad, column_bytes_);
}

void PhaseRows::fill(const std::uint8_t* sram, int block, std::uint8_t* scratch, int first, int count,
                     const std::uint8_t* pad,
                     void (*expand)(std::uint8_t*, const std::uint8_t*, std::size_t, int, int)) const {
    const long top = window_source(first, window_.stride_h, window_.pad_top, 0, 1);
    const long stride = window_.stride_w;
    const long left = std::min<long>(width_, std::max(0, window_.pad_left));
    const long inside = std::max(left, std::min<long>(width_, static_cast<long>(in_w_) + window_.pad_left));
    const std::size_t rows = rows_of(count);
    for (std::size_t r = 0; r < rows; ++r) {
        std::uint8_t* row = scratch + r * row_bytes();
        const long iy = top + static_cast<long>(r);
        if (iy < 0 || iy >= in_h_) {
            border(row, 0, width_, pad);
            continue;
        }
        border(row, 0, left, pad);
        for (long phase = 0; phase < stride; ++phase) {
            const long x =
                left + (phase + stride - left % stride) % stride;  // first column of this phase inside the map
            if (x >= inside) continue;
            expand(column(row, x),
                   sram + in_.at(static_cast<std::size_t>(iy), static_cast<std::size_t>(x - window_.pad_left)) +
                       static_cast<std::size_t>(block) * 16,
                   static_cast<std::size_t>(in_.pixel_stride) * static_cast<std::size_t>(stride),
                   static_cast<int>((inside - x + stride - 1) / stride), 16);
        }
        border(row, inside, width_, pad);
    }
}

namespace {

std::shared_ptr<const DepthwisePack> make_pack(const ConvOp& op, const Constants& constants,
                                               const DepthwiseKernel& kernel, const PhaseRows& rows) {
    auto pack = std::make_shared<DepthwisePack>();
    const Window& w = op.window;
    const int lanes = 16 * op.blocks_out, taps = w.kernel_h * w.kernel_w;
    const int groups = (taps + kernel.group - 1) / kernel.group;
    for (int t = 0; t < groups * kernel.group; ++t) {
        const int tap = std::min(t, taps - 1);
        pack->taps.push_back(rows.tap_offset(tap / w.kernel_w, tap % w.kernel_w));
    }
    pack->weights.resize(static_cast<std::size_t>(groups) * op.blocks_out);
    pack->bias.resize(4 * static_cast<std::size_t>(op.blocks_out));
    std::vector<double> bound(static_cast<std::size_t>(lanes));
    std::vector<std::int32_t> bias(static_cast<std::size_t>(lanes));
    for (int lane = 0; lane < lanes; ++lane) {
        std::int64_t sum = 0, magnitude = 0;
        for (int t = 0; t < taps; ++t) {
            const auto value = static_cast<std::int8_t>(constants.weight[t * lanes + lane]);
            sum += value;
            magnitude += std::abs(static_cast<int>(value));
        }
        const std::int32_t given = read_i32(constants.bias + 4 * lane);
        const std::int64_t corrected = kernel.offset128 ? given - 128 * sum : given;
        bias[static_cast<std::size_t>(lane)] =
            static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::uint64_t>(corrected)));
        bound[static_cast<std::size_t>(lane)] =
            std::abs(static_cast<double>(given)) + 128.0 * static_cast<double>(magnitude);
    }
    const int per_vector = 16 / kernel.vectors;
    for (int block = 0; block < op.blocks_out; ++block) {
        for (int g = 0; g < groups; ++g) {
            std::uint8_t* to = pack->weights[static_cast<std::size_t>(block) * groups + g].bytes;
            for (int i = 0; i < 16 * kernel.group; ++i) {
                const int t = g * kernel.group + i % kernel.group, e = i / kernel.group;
                const int lane = block * 16 + (*kernel.lanes)[e / per_vector][e % per_vector];
                const int value = t < taps ? static_cast<std::int8_t>(constants.weight[t * lanes + lane]) : 0;
                const auto wide = static_cast<std::int16_t>(value);
                if (kernel.lane_bytes == 2)
                    std::memcpy(to + 2 * i, &wide, 2);
                else
                    to[i] = static_cast<std::uint8_t>(value);
            }
        }
        if (kernel.lane_bytes == 2 && taps == 9 && w.kernel_w == 3 && w.stride_w == 1 && w.dilation_w == 1) {
            const int pairs[7][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}, {8, -1}, {-1, 6}, {7, 8}};
            for (const auto& pair : pairs) {
                pack->square.emplace_back();
                for (int i = 0; i < 32; ++i) {
                    const int tap = pair[i % 2], e = i / 2;
                    const int lane = block * 16 + (*kernel.lanes)[e / per_vector][e % per_vector];
                    const auto wide = static_cast<std::int16_t>(
                        tap < 0 ? 0 : static_cast<std::int8_t>(constants.weight[tap * lanes + lane]));
                    std::memcpy(pack->square.back().bytes + 2 * i, &wide, 2);
                }
            }
            for (int ky = 0; ky < 3; ++ky) pack->rows[ky] = rows.tap_offset(ky, 0);
        }
        for (int j = 0; j < 4; ++j)
            for (int e = 0; e < 16; ++e)
                std::memcpy(pack->bias[4 * static_cast<std::size_t>(block) + j].bytes + 4 * e,
                            &bias[static_cast<std::size_t>(block) * 16 + (*kernel.lanes)[j][e]], 4);
    }
    make_stage(pack->stage, op.stage, constants, op.blocks_out, bound, *kernel.lanes);
    pack->pad.resize(static_cast<std::size_t>(lanes) * kernel.lane_bytes);
    kernel.expand(pack->pad.data(), constants.pad, 0, 1, lanes);
    return pack;
}

class DepthwiseStep : public Step {
  public:
    DepthwiseStep(const ConvOp& op, const DepthwiseKernel& kernel)
        : op_(op),
          kernel_(kernel),
          rows_(op.in, op.in_h, op.in_w, op.window, op.out_w, 16 * static_cast<std::size_t>(kernel.lane_bytes),
                kernel.spare_columns) {
        units = op.out_h;
        while (piece_ < op.out_h && rows_.rows_of(piece_ + 1) * rows_.row_bytes() <= kScratchTarget) ++piece_;
        scratch_bytes = rows_.rows_of(piece_) * rows_.row_bytes();
        const double taps = static_cast<double>(op.window.kernel_h) * op.window.kernel_w;
        cost = 16.0 * op.blocks_out * op.out_h * op.out_w * kernel.cycles * (0.4 + 0.6 * taps / 9);
    }

    const PhaseRows& rows() const { return rows_; }
    void set_pack(std::shared_ptr<const DepthwisePack> pack) { pack_ = std::move(pack); }

    void run(const Memory& memory, std::uint8_t* scratch, int begin, int end) const override {
        DepthwiseRow row;
        row.pack = pack_.get();
        row.groups = static_cast<int>(pack_->taps.size()) / kernel_.group;
        row.pixels = op_.out_w;
        row.out_step = op_.out.pixel_stride;
        const std::size_t block_pad = 16 * static_cast<std::size_t>(kernel_.lane_bytes);
        for (int at = begin; at < end; at += piece_) {
            const int count = std::min(piece_, end - at);
            for (row.block = 0; row.block < op_.blocks_out; ++row.block) {
                rows_.fill(memory.sram, row.block, scratch, at, count,
                           pack_->pad.data() + static_cast<std::size_t>(row.block) * block_pad, kernel_.expand);
                for (int y = 0; y < count; ++y) {
                    row.activations = scratch + static_cast<std::size_t>(y) * op_.window.stride_h * rows_.row_bytes();
                    row.out = memory.sram + op_.out.at(static_cast<std::size_t>(at + y), 0) +
                              static_cast<std::size_t>(row.block) * 16;
                    kernel_.row(row);
                }
            }
        }
    }

  private:
    ConvOp op_;
    const DepthwiseKernel& kernel_;
    PhaseRows rows_;
    std::shared_ptr<const DepthwisePack> pack_;
    int piece_ = 1;
};

}  // namespace

std::unique_ptr<Step> make_depthwise_step(const ConvOp& op, const Constants& constants, PackCache& cache,
                                          const DepthwiseKernel& kernel) {
    auto step = std::make_unique<DepthwiseStep>(op, kernel);
    if (step->scratch_bytes > kScratchLimit) return nullptr;
    std::string key = "depthwise" + constants.key + std::to_string(step->rows().plane_bytes());
    for (int v : {op.blocks_out, op.window.kernel_h, op.window.kernel_w, op.window.dilation_h, op.window.dilation_w,
                  op.window.stride_w, static_cast<int>(op.stage.kind), op.stage.fraction_bits,
                  static_cast<int>(op.stage.tail_low_is_input), static_cast<int>(op.stage.tail_high_is_input),
                  op.stage.tail_low, op.stage.tail_high})
        key += "," + std::to_string(v);
    step->set_pack(cache.get<DepthwisePack>(key, [&] { return make_pack(op, constants, kernel, step->rows()); }));
    return step;
}

}  // namespace npuforge::sim
