// Owns the bf16 steps of the SIMD levels (see bf16_step.hpp).
#include "bf16_step.hpp"

#include <string>

#include "bf16_math.hpp"

namespace npuforge::sim {
namespace {

constexpr std::size_t kScratchLimit = 32 * 1024 * 1024;

Bf16StagePack make_stage(const Bf16StageOp& op, const Constants& constants, int blocks) {
    Bf16StagePack pack;
    pack.op = op;
    pack.blocks.resize(static_cast<std::size_t>(blocks));
    for (int lane = 0; lane < 16 * blocks; ++lane) {
        const std::uint8_t* record = constants.record + isa::Bf16Record::BYTES * static_cast<std::size_t>(lane);
        Bf16StageBlock& block = pack.blocks[static_cast<std::size_t>(lane / 16)];
        block.bias[lane % 16] = bf16::read_float(record);
        block.slope[lane % 16] = bf16::read_float(record + 4);
        block.low[lane % 16] = bf16::read_float(record + 8);
        block.high[lane % 16] = bf16::read_float(record + 12);
    }
    if (op.kind == isa::Stage::TABLE) {
        pack.table.resize(3 * 256);
        for (std::size_t k = 0; k < pack.table.size(); ++k) pack.table[k] = bf16::read_float(constants.table + 4 * k);
    }
    const auto tail = [](std::uint16_t bits) {
        return bf16::flush(bf16::from_bits(static_cast<std::uint32_t>(bits) << 16));
    };
    pack.tail_low = tail(op.tail_low);
    pack.tail_high = tail(op.tail_high);
    return pack;
}

std::string stage_key(const Bf16StageOp& op) {
    std::string key;
    for (int v :
         {static_cast<int>(op.kind), static_cast<int>(op.tail_low_is_input), static_cast<int>(op.tail_high_is_input),
          static_cast<int>(op.tail_low), static_cast<int>(op.tail_high)})
        key += "," + std::to_string(v);
    return key;
}

std::shared_ptr<const Bf16ConvPack> make_pack(const Bf16ConvOp& op, const Constants& constants) {
    auto pack = std::make_shared<Bf16ConvPack>();
    const std::size_t taps = op.taps();
    const std::size_t lanes_out = 16 * static_cast<std::size_t>(op.blocks_out);
    const std::size_t lanes_in = op.depthwise ? 1 : 16 * static_cast<std::size_t>(op.blocks_in);
    pack->weights.resize(taps * lanes_in * lanes_out);
    float* to = pack->weights.data();
    if (op.depthwise) {
        for (std::size_t i = 0; i < taps * lanes_out; ++i) to[i] = bf16::read(constants.weight + 2 * i);
    } else {
        for (std::size_t block = 0; block < lanes_out / 16; ++block)
            for (std::size_t k = 0; k < taps * lanes_in; ++k)
                for (std::size_t o = 0; o < 16; ++o)
                    *to++ = bf16::read(constants.weight + 2 * ((16 * block + o) * taps * lanes_in + k));
    }
    pack->zeros.assign(pack->weights.size() / 256, 0);
    for (std::size_t i = 0; i < 256 * pack->zeros.size(); ++i)
        if (pack->weights[i] == 0) pack->zeros[i / 256] = 1;
    pack->stage = make_stage(op.stage, constants, op.blocks_out);
    return pack;
}

class ConvStep final : public Step {
  public:
    ConvStep(const Bf16ConvOp& op, const Bf16Kernel& kernel, std::shared_ptr<const Bf16ConvPack> pack)
        : op_(op), kernel_(kernel), pack_(std::move(pack)) {
        units = op.out_h;
        row_floats_ = 16 * static_cast<std::size_t>(op.blocks_in) * static_cast<std::size_t>(op.in_w);
        const auto rows = static_cast<std::size_t>(op.window.kernel_h);
        scratch_bytes = (op.depthwise ? 0 : rows * row_floats_ * sizeof(float)) +
                        rows * (sizeof(const std::uint8_t*) + sizeof(bool)) + 64;
        cost = static_cast<double>(op.out_h) * op.out_w *
               (static_cast<double>(op.weight_bytes()) / (op.depthwise ? 8 : 16) + 30.0 * op.blocks_out);
    }

    void run(const Memory& memory, std::uint8_t* scratch, int begin, int end) const override {
        const Window& w = op_.window;
        const auto rows = static_cast<std::size_t>(w.kernel_h);
        auto* floats = reinterpret_cast<float*>(scratch);
        auto* lines = reinterpret_cast<const std::uint8_t**>(
            scratch + (op_.depthwise ? 0 : (rows * row_floats_ * sizeof(float) + 7) / 8 * 8));
        auto* inside = reinterpret_cast<bool*>(lines + rows);
        Bf16ConvRow row;
        row.op = &op_;
        row.pack = pack_.get();
        row.rows = floats;
        row.lines = lines;
        row.inside = inside;
        for (int y = begin; y < end; ++y) {
            for (int ky = 0; ky < w.kernel_h; ++ky) {
                const long iy = window_source(y, w.stride_h, w.pad_top, ky, w.dilation_h);
                inside[ky] = iy >= 0 && iy < op_.in_h;
                lines[ky] = nullptr;
                if (!inside[ky]) continue;
                lines[ky] = memory.sram + op_.in.at(static_cast<std::size_t>(iy), 0);
                if (op_.depthwise) continue;
                float* to = floats + static_cast<std::size_t>(ky) * row_floats_;
                if (op_.in.pixel_stride == kBf16Block * op_.blocks_in) {
                    kernel_.widen(to, lines[ky], static_cast<int>(row_floats_));
                } else {
                    for (int x = 0; x < op_.in_w; ++x, to += 16 * op_.blocks_in)
                        kernel_.widen(to, lines[ky] + static_cast<std::size_t>(x) * op_.in.pixel_stride,
                                      16 * op_.blocks_in);
                }
            }
            row.out = memory.sram + op_.out.at(static_cast<std::size_t>(y), 0);
            (op_.depthwise ? kernel_.depthwise : kernel_.conv)(row);
        }
    }

  private:
    Bf16ConvOp op_;
    const Bf16Kernel& kernel_;
    std::shared_ptr<const Bf16ConvPack> pack_;
    std::size_t row_floats_ = 0;
};

class PoolStep final : public Step {
  public:
    PoolStep(const Bf16PoolOp& op, const Bf16Kernel& kernel, std::vector<float> factors)
        : op_(op), kernel_(kernel), factors_(std::move(factors)) {
        units = op.out_h;
        cost = 8.0 * op.blocks * op.out_h * op.out_w * op.window.kernel_h * op.window.kernel_w;
    }
    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        for (int y = begin; y < end; ++y) kernel_.pool(op_, factors_.data(), memory, y);
    }

  private:
    Bf16PoolOp op_;
    const Bf16Kernel& kernel_;
    std::vector<float> factors_;
};

class EltwiseStep final : public Step {
  public:
    EltwiseStep(const Bf16EltwiseOp& op, const Bf16Kernel& kernel, std::shared_ptr<const Bf16StagePack> stage,
                std::vector<float> factors)
        : op_(op), kernel_(kernel), stage_(std::move(stage)), factors_(std::move(factors)) {
        units = op.out_h;
        cost = 30.0 * op.blocks * op.out_h * op.out_w;
    }
    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        for (int y = begin; y < end; ++y) kernel_.eltwise(op_, *stage_, factors_.data(), memory, y);
    }

  private:
    Bf16EltwiseOp op_;
    const Bf16Kernel& kernel_;
    std::shared_ptr<const Bf16StagePack> stage_;
    std::vector<float> factors_;
};

class ResizeStep final : public Step {
  public:
    ResizeStep(const Bf16ResizeOp& op, const Bf16Kernel& kernel, const Constants& constants)
        : op_(op), kernel_(kernel) {
        units = op.out_h;
        cost = 30.0 * op.blocks * op.out_h * op.out_w;
        for (int y = 0; y < op.out_h; ++y)
            rows_.push_back(isa::ResizeBf16Record::decode(constants.rows + isa::ResizeBf16Record::BYTES * y));
        for (int x = 0; x < op.out_w; ++x)
            cols_.push_back(isa::ResizeBf16Record::decode(constants.cols + isa::ResizeBf16Record::BYTES * x));
    }
    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        for (int y = begin; y < end; ++y)
            kernel_.resize(op_, rows_[static_cast<std::size_t>(y)], cols_.data(), memory, y);
    }

  private:
    Bf16ResizeOp op_;
    const Bf16Kernel& kernel_;
    std::vector<isa::ResizeBf16Record> rows_, cols_;
};

std::vector<float> floats(const std::uint8_t* from, std::size_t count) {
    std::vector<float> result(from == nullptr ? 0 : count);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = bf16::read_float(from + 4 * i);
    return result;
}

}  // namespace

std::unique_ptr<Step> make_bf16_step(const Bf16ConvOp& op, const Constants& constants, PackCache& cache,
                                     const Bf16Kernel& kernel) {
    // Bands of a layer share weights and stage.
    std::string key = (op.depthwise ? "bf16 depthwise" : "bf16 conv") + constants.key + stage_key(op.stage);
    for (int v : {op.blocks_in, op.blocks_out, op.window.kernel_h, op.window.kernel_w}) key += "," + std::to_string(v);
    auto step =
        std::make_unique<ConvStep>(op, kernel, cache.get<Bf16ConvPack>(key, [&] { return make_pack(op, constants); }));
    if (step->scratch_bytes > kScratchLimit) return nullptr;
    return step;
}

std::unique_ptr<Step> make_bf16_step(const Bf16PoolOp& op, const Constants& constants, PackCache&,
                                     const Bf16Kernel& kernel) {
    return std::make_unique<PoolStep>(op, kernel, floats(constants.weight, op.counts));
}

std::unique_ptr<Step> make_bf16_step(const Bf16EltwiseOp& op, const Constants& constants, PackCache& cache,
                                     const Bf16Kernel& kernel) {
    const std::string key = "bf16 stage" + constants.key + stage_key(op.stage) + "," + std::to_string(op.blocks);
    auto stage = cache.get<Bf16StagePack>(
        key, [&] { return std::make_shared<Bf16StagePack>(make_stage(op.stage, constants, op.blocks)); });
    return std::make_unique<EltwiseStep>(op, kernel, std::move(stage),
                                         floats(constants.operand, 16 * static_cast<std::size_t>(op.blocks)));
}

std::unique_ptr<Step> make_bf16_step(const Bf16ResizeOp& op, const Constants& constants, PackCache&,
                                     const Bf16Kernel& kernel) {
    return std::make_unique<ResizeStep>(op, kernel, constants);
}

}  // namespace npuforge::sim
