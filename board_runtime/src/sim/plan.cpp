// Owns the translation of a program at load (see plan.hpp).
#include "plan.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "bf16_generic.hpp"
#include "check.hpp"
#include "records.hpp"
#include "refuse.hpp"
#include "token_walk.hpp"
#include "tracker.hpp"

namespace npuforge::sim {

namespace {

using generic::Origin;

// Any operation on the portable engine, one output row per unit.
template <class Op, void (*kRun)(const Op&, const Origin&, const Memory&, int, int)>
class GenericStep : public Step {
  public:
    GenericStep(const Op& op, const Origin& origin) : op_(op), origin_(origin) { units = op.out_h; }
    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        kRun(op_, origin_, memory, begin, end);
    }

  private:
    Op op_;
    Origin origin_;
};

class Translator {
  public:
    Translator(const DeviceProgram& program, Level level, Plan& plan)
        : program_(program),
          plan_(plan),
          tracker_(program.image, program.sram_bytes, plan.owned),
          limits_{program.image_size, program.pool_size, program.sram_bytes, program.bf16},
          engine_(engine_of(level)) {}

    PartitionPlan partition(const DeviceProgram::Range& range) {
        PartitionPlan result;
        tracker_.reset();
        Tokens tokens;
        for (std::size_t i = range.first; i < range.first + range.count; ++i) {
            const std::uint32_t* words = program_.instructions + i * isa::INSTRUCTION_WORDS;
            const Operation operation = decode(words, i, limits_);
            origin_ = {i, isa::opcode_name(isa::opcode_of(words))};
            tokens.step(i, words);
            const bool last = i + 1 == range.first + range.count;
            if (std::holds_alternative<HaltOp>(operation) != last)
                refuse(i, origin_.opcode, "opcode",
                       last ? "expected HALT at the end of the partition, found another"
                            : "expected HALT only at the end of the partition");
            if (last) {
                tokens.finish(i);
                break;
            }
            parameter_views_.clear();
            auto step = std::visit([this](const auto& op) { return this->translate(op); }, operation);
            step->instruction = i;
            check_overlap(*step, operation);
            for (const View& view : step->reads) {
                if (view.space == Space::kSram && tracker_.reads_unwritten(view)) result.clear_sram = true;
            }
            const auto* transfer = std::get_if<TransferOp>(&operation);
            if (transfer != nullptr && transfer->from_space == Space::kImage) {
                step->loads_image = true;
                tracker_.write_image(*transfer);
            } else {
                for (const View& view : step->writes) {
                    if (view.space == Space::kSram) tracker_.write_computed(view);
                }
            }
            plan_.scratch_bytes = std::max(plan_.scratch_bytes, step->scratch_bytes);
            result.steps.push_back(std::move(step));
        }
        return result;
    }

  private:
    std::unique_ptr<Step> translate(const HaltOp&) { return nullptr; }

    std::unique_ptr<Step> translate(const TransferOp& op) {
        auto step = make_transfer(op);
        step->reads.push_back(op.from.view(op.from_space, op.rows, op.cols, op.chunk));
        step->writes.push_back(op.to.view(op.to_space, op.rows, op.cols, op.chunk));
        return step;
    }

    std::unique_ptr<Step> translate(const FoldOp& op) {
        auto step = make_fold(op, limits_.of(op.from_space));
        step->layer = "fold" + std::to_string(op.address) + "," + std::to_string(op.out.row_stride);
        step->reads.push_back({op.from_space, op.address, static_cast<std::uint64_t>(op.in_h), 1, op.row_stride, 0,
                               static_cast<std::uint64_t>(op.in_w) * op.pixel_bytes});
        step->writes.push_back(op.out.view(Space::kSram, op.out_h, op.out_w, op.out_bytes));
        return step;
    }

    std::unique_ptr<Step> translate(const ConvOp& op) {
        begin_parameters();
        constants_.weight = parameter(op.weight_address, op.weight_bytes());
        constants_.bias = parameter(op.bias_address, 64 * static_cast<std::size_t>(op.blocks_out));
        constants_.pad = parameter(op.pad_address, 16 * static_cast<std::size_t>(op.blocks_in));
        stage(op.stage, op.blocks_out);
        if (op.residual) sum_parameters(op.sum);
        std::unique_ptr<Step> step;
        if (all_constant_ && engine_ != nullptr) {
            step = op.depthwise ? engine_->depthwise(op, constants_, cache_) : engine_->conv(op, constants_, cache_);
        }
        if (!step) {
            step = std::make_unique<GenericStep<ConvOp, generic::conv>>(op, origin_);
            step->cost = 2.0 * op.weight_bytes() * op.out_h * op.out_w;
            add_parameters(*step);
        }
        if (all_constant_) step->layer = origin_.opcode + constants_.key;
        step->reads.push_back(op.in.view(Space::kSram, op.in_h, op.in_w, 16 * op.blocks_in));
        if (op.residual) step->reads.push_back(op.sum.b.view(Space::kSram, op.out_h, op.out_w, 16 * op.blocks_out));
        step->writes.push_back(op.out.view(Space::kSram, op.out_h, op.out_w, 16 * op.blocks_out));
        return step;
    }

    std::unique_ptr<Step> translate(const PoolOp& op) {
        begin_parameters();
        const std::size_t lanes = 16 * static_cast<std::size_t>(op.blocks);
        if (op.average) {
            const Window& w = op.window;
            int counts = 1;
            if (!op.single) {
                int rows = 0, cols = 0;
                for (int y = 0; y < op.out_h; ++y)
                    rows =
                        std::max(rows, valid_taps(y, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, op.in_h).count());
                for (int x = 0; x < op.out_w; ++x)
                    cols = std::max(cols,
                                    valid_taps(x, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, op.in_w).count());
                counts = rows * cols;
            }
            constants_.weight = parameter(op.weight_address, 2 * lanes * counts);
            constants_.requant = parameter(op.requant_address, lanes * isa::RequantRecord::BYTES);
            operands(op.operand_address, lanes);
        }
        std::unique_ptr<Step> step;
        if (all_constant_ && engine_ != nullptr) step = engine_->pool(op, constants_, cache_);
        if (!step) {
            step = std::make_unique<GenericStep<PoolOp, generic::pool>>(op, origin_);
            step->cost = 1.0 * lanes * op.out_h * op.out_w * op.window.kernel_h * op.window.kernel_w;
            add_parameters(*step);
        }
        step->reads.push_back(op.in.view(Space::kSram, op.in_h, op.in_w, lanes));
        step->writes.push_back(op.out.view(Space::kSram, op.out_h, op.out_w, lanes));
        return step;
    }

    std::unique_ptr<Step> translate(const EltwiseOp& op) {
        begin_parameters();
        const std::size_t lanes = 16 * static_cast<std::size_t>(op.blocks);
        operands(op.operand_address, lanes);
        const bool affine = op.kind == isa::EltwiseKind::AFFINE;
        if (affine) constants_.bias = parameter(op.bias_address, 4 * lanes);
        stage(op.stage, op.blocks);
        std::unique_ptr<Step> step;
        if (all_constant_ && engine_ != nullptr) step = engine_->eltwise(op, constants_, cache_);
        if (!step) {
            step = std::make_unique<GenericStep<EltwiseOp, generic::eltwise>>(op, origin_);
            step->cost = 10.0 * lanes * op.out_h * op.out_w;
            add_parameters(*step);
        }
        if (all_constant_) step->layer = origin_.opcode + constants_.key;
        step->reads.push_back(op.a.view(Space::kSram, op.out_h, op.out_w, lanes));
        if (!affine) step->reads.push_back(op.b.view(Space::kSram, op.out_h, op.out_w, op.broadcast_b ? 1 : lanes));
        step->writes.push_back(op.out.view(Space::kSram, op.out_h, op.out_w, lanes));
        return step;
    }

    std::unique_ptr<Step> translate(const ResizeOp& op) {
        begin_parameters();
        constants_.rows = parameter(op.row_table_address, op.out_h * isa::ResizeRecord::BYTES);
        constants_.cols = parameter(op.col_table_address, op.out_w * isa::ResizeRecord::BYTES);
        for (int y = 0; constants_.rows != nullptr && y < op.out_h; ++y)
            checked_resize(origin_, "row_table_addr", constants_.rows, y, op.in_h);
        for (int x = 0; constants_.cols != nullptr && x < op.out_w; ++x)
            checked_resize(origin_, "col_table_addr", constants_.cols, x, op.in_w);
        std::unique_ptr<Step> step;
        if (all_constant_ && engine_ != nullptr) step = engine_->resize(op, constants_, cache_);
        if (!step) {
            step = std::make_unique<GenericStep<ResizeOp, generic::resize>>(op, origin_);
            step->cost = 64.0 * op.blocks * op.out_h * op.out_w;
            add_parameters(*step);
        }
        step->reads.push_back(op.in.view(Space::kSram, op.in_h, op.in_w, 16 * op.blocks));
        step->writes.push_back(op.out.view(Space::kSram, op.out_h, op.out_w, 16 * op.blocks));
        return step;
    }

    std::unique_ptr<Step> translate(const Bf16ConvOp& op) {
        begin_parameters();
        constants_.weight = parameter(op.weight_address, op.weight_bytes());
        stage(op.stage, op.blocks_out);
        return bf16_step<generic::conv_bf16>(op, op.in, op.in_h, op.in_w, op.blocks_in, op.blocks_out);
    }

    std::unique_ptr<Step> translate(const Bf16PoolOp& op) {
        begin_parameters();
        if (op.average) constants_.weight = parameter(op.weight_address, 4 * op.counts);
        return bf16_step<generic::pool_bf16>(op, op.in, op.in_h, op.in_w, op.blocks, op.blocks);
    }

    std::unique_ptr<Step> translate(const Bf16EltwiseOp& op) {
        begin_parameters();
        const bool affine = op.kind == isa::EltwiseKind::AFFINE;
        if (affine) constants_.operand = parameter(op.operand_address, 64 * static_cast<std::size_t>(op.blocks));
        stage(op.stage, op.blocks);
        auto step = bf16_step<generic::eltwise_bf16>(op, op.a, op.out_h, op.out_w, op.blocks, op.blocks);
        const std::size_t bytes = op.broadcast_b ? 2 : kBf16Block * op.blocks;
        if (!affine) step->reads.push_back(op.b.view(Space::kSram, op.out_h, op.out_w, bytes));
        return step;
    }

    std::unique_ptr<Step> translate(const Bf16ResizeOp& op) {
        begin_parameters();
        constants_.rows = parameter(op.row_table_address, op.out_h * isa::ResizeBf16Record::BYTES);
        constants_.cols = parameter(op.col_table_address, op.out_w * isa::ResizeBf16Record::BYTES);
        for (int y = 0; constants_.rows != nullptr && y < op.out_h; ++y)
            generic::checked_resize_bf16(origin_, "row_table_addr", constants_.rows, y, op.in_h);
        for (int x = 0; constants_.cols != nullptr && x < op.out_w; ++x)
            generic::checked_resize_bf16(origin_, "col_table_addr", constants_.cols, x, op.in_w);
        return bf16_step<generic::resize_bf16>(op, op.in, op.in_h, op.in_w, op.blocks, op.blocks);
    }

    // The step of a bf16 operation whose parameters have been named: the level's own, or the portable engine.
    template <auto kGeneric, class Op>
    std::unique_ptr<Step> bf16_step(const Op& op, const Map& in, int in_h, int in_w, int blocks_in, int blocks_out) {
        std::unique_ptr<Step> step;
        if (all_constant_ && engine_ != nullptr) step = engine_->bf16(op, constants_, cache_);
        if (!step) {
            step = std::make_unique<GenericStep<Op, kGeneric>>(op, origin_);
            step->cost = 200.0 * blocks_in * blocks_out * op.out_h * op.out_w;
            add_parameters(*step);
        }
        if (all_constant_ && !constants_.key.empty()) step->layer = origin_.opcode + constants_.key;
        step->reads.push_back(in.view(Space::kSram, in_h, in_w, kBf16Block * blocks_in));
        step->writes.push_back(op.out.view(Space::kSram, op.out_h, op.out_w, kBf16Block * blocks_out));
        return step;
    }

    void stage(const Bf16StageOp& op, int blocks) {
        constants_.record =
            parameter(op.record_address, isa::Bf16Record::BYTES * 16 * static_cast<std::size_t>(blocks));
        if (op.kind == isa::Stage::TABLE) constants_.table = parameter(op.table_address, kCurveBytes);
    }

    void begin_parameters() {
        constants_ = Constants{};
        parameter_views_.clear();
        all_constant_ = true;
    }
    const std::uint8_t* parameter(std::uint32_t address, std::size_t bytes) {
        parameter_views_.push_back({Space::kSram, address, 1, 1, 0, 0, bytes});
        const std::uint8_t* data = tracker_.constant(address, bytes, constants_.key);
        all_constant_ = all_constant_ && data != nullptr;
        return data;
    }
    void operands(std::uint32_t address, std::size_t lanes) {
        constants_.operand = parameter(address, lanes * isa::OperandRecord::BYTES);
        for (std::size_t lane = 0; constants_.operand != nullptr && lane < lanes; ++lane)
            checked_operand(origin_, constants_.operand, lane);
    }
    const std::uint8_t* requant(const StageOp& op, int blocks, const char* field) {
        const std::size_t lanes = 16 * static_cast<std::size_t>(blocks);
        const std::uint8_t* records = parameter(op.requant_address, lanes * isa::RequantRecord::BYTES);
        for (std::size_t lane = 0; records != nullptr && lane < lanes; ++lane)
            checked_requant(origin_, op.kind, records, lane, field);
        return records;
    }
    // Of a residual stage.
    void sum_parameters(const EltwiseOp& sum) {
        operands(sum.operand_address, 16 * static_cast<std::size_t>(sum.blocks));
        constants_.sum_requant = requant(sum.stage, sum.blocks, "sum_requant_addr");
    }
    void stage(const StageOp& op, int blocks) {
        constants_.requant = requant(op, blocks, "requant_addr");
        if (op.kind == isa::Stage::TABLE) constants_.table = parameter(op.table_address, 2 * 257);
    }
    // The portable engines read parameters during the run.
    void add_parameters(Step& step) const {
        step.reads.insert(step.reads.end(), parameter_views_.begin(), parameter_views_.end());
    }

    // An output may share bytes with an input only where each byte is read before it is written, whatever the order of
    // pixels.
    void check_overlap(Step& step, const Operation& operation) {
        const auto* conv = std::get_if<ConvOp>(&operation);
        const bool sums = conv != nullptr && conv->residual;
        for (const View& out : step.writes) {
            if (out.overlaps_itself()) step.granularity = step.units;  // one after another
            for (const View& in : step.reads) {
                if (!may_overlap(in, out)) continue;
                const bool same = in.address == out.address && in.length == out.length &&
                                  (in.rows == 1 || in.row_stride == out.row_stride) &&
                                  (in.cols == 1 || in.col_stride == out.col_stride) && in.rows == out.rows &&
                                  in.cols == out.cols;
                const bool pixelwise =  // a convolution reads its skip tensor so, which is the last of its reads
                    std::holds_alternative<EltwiseOp>(operation) || std::holds_alternative<Bf16EltwiseOp>(operation) ||
                    std::holds_alternative<TransferOp>(operation) || (sums && &in == &step.reads.back());
                if (same && pixelwise && !out.overlaps_itself()) continue;
                if (share_bytes(in, out)) refuse_overlap();
            }
            // Parameters too, although fast engines take them from the image and would not notice.
            for (const View& in : parameter_views_)
                if (may_overlap(in, out) && share_bytes(in, out)) refuse_overlap();
        }
    }

    [[noreturn]] void refuse_overlap() const {
        refuse(origin_.index, origin_.opcode, "out_addr",
               "expected an output apart from the inputs, found one that overwrites bytes still to be read");
    }

    // Exact, by marking; only for the few pairs that strides cannot tell apart.
    bool share_bytes(const View& in, const View& out) {
        marks_.assign(limits_.of(in.space), 0);
        for (std::uint64_t r = 0; r < in.rows; ++r)
            for (std::uint64_t c = 0; c < in.cols; ++c)
                std::fill_n(
                    marks_.begin() + static_cast<std::ptrdiff_t>(in.address + r * in.row_stride + c * in.col_stride),
                    in.length, std::uint8_t{1});
        for (std::uint64_t r = 0; r < out.rows; ++r) {
            for (std::uint64_t c = 0; c < out.cols; ++c) {
                const auto first =
                    marks_.begin() + static_cast<std::ptrdiff_t>(out.address + r * out.row_stride + c * out.col_stride);
                if (std::find(first, first + static_cast<std::ptrdiff_t>(out.length), 1) !=
                    first + static_cast<std::ptrdiff_t>(out.length))
                    return true;
            }
        }
        return false;
    }

    const DeviceProgram& program_;
    Plan& plan_;
    Tracker tracker_;
    Limits limits_;
    const Engine* engine_;
    PackCache cache_;
    Origin origin_;
    Constants constants_;
    std::vector<View> parameter_views_;
    bool all_constant_ = true;
    std::vector<std::uint8_t> marks_;
};

}  // namespace

Plan make_plan(const DeviceProgram& program, Level level, int threads) {
    Plan plan;
    Translator translator(program, level, plan);
    std::size_t next = 0;
    for (const DeviceProgram::Range& range : program.partitions) {
        if (range.first != next || range.count == 0 || range.count > program.instruction_count - range.first)
            throw FormatError("instructions: expected partitions that follow each other from instruction " +
                              std::to_string(next) + " to " + std::to_string(program.instruction_count) +
                              ", found one at " + std::to_string(range.first) + " with " + std::to_string(range.count));
        plan.partitions.push_back(translator.partition(range));
        make_schedules(plan.partitions.back(), threads);
        next = range.first + range.count;
    }
    if (next != program.instruction_count)
        throw FormatError("instructions: expected all " + std::to_string(program.instruction_count) +
                          " in partitions, found " + std::to_string(next));
    return plan;
}

}  // namespace npuforge::sim
