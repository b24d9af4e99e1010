// Runs a whole model: partitions in order, contexts recycled, results and errors counted.
#include "npuforge/session.hpp"

#include <algorithm>
#include <cstring>

#include "npuforge/border.hpp"
#include "session_context.hpp"
#ifdef NPUFORGE_HAVE_UIO
#include "npuforge/uio.hpp"
#endif

namespace npuforge {

using cpu::Shape;
using cpu::Tensor;
using cpu::Type;

namespace {

void refuse_level(const SessionOptions& options) {
    if (options.level != "auto")
        throw ArgumentError("simulator level " + options.level + ": device " + options.device +
                            " has none, expected auto");
}

std::unique_ptr<Device> make_device([[maybe_unused]] const std::shared_ptr<const Program>& program,
                                    const SessionOptions& options) {
    if (options.threads < 1)
        throw ArgumentError("threads: expected 1 or more, found " + std::to_string(options.threads));
    if (!options.board.empty() && options.device != "uio")
        throw ArgumentError("board " + options.board + ": device " + options.device + " has none; it belongs to uio");
    if (options.device == "sim") {
#ifdef NPUFORGE_HAVE_SIM
        return make_sim_device(Program::device_program(program), options.threads, options.level);
#else
        throw ArgumentError("device sim: this build has none");
#endif
    }
    if (options.device == "csim") {
        refuse_level(options);
#ifdef NPUFORGE_HAVE_CSIM
        return make_csim_device(Program::device_program(program));
#else
        throw ArgumentError("device csim: this build has none");
#endif
    }
    if (options.device == "uio") {
        refuse_level(options);
#ifdef NPUFORGE_HAVE_UIO
        if (options.board.empty())
            throw ArgumentError("device uio: give the description of the board, --board board.json (docs/board.md)");
        const uio::Board board = uio::Board::read(options.board);
        program->check_arch(board.arch);
        return uio::make_device(Program::device_program(program), board);
#else
        throw ArgumentError("device uio: this build has none; it needs Linux");
#endif
    }
    throw ArgumentError("device: expected sim, csim or uio, found '" + options.device + "'");
}

}  // namespace

std::shared_ptr<Session> Session::open(const std::string& path, const SessionOptions& options) {
    return std::make_shared<Session>(Program::load(path, options.expected_arch), options);
}

Session::Session(std::shared_ptr<const Program> program, const SessionOptions& options)
    : program_(std::move(program)),
      device_name_(options.device),
      plan_(program_),
      device_(make_device(program_, options)) {
    std::size_t npu = 0;
    for (const PartitionMeta& partition : program_->partitions()) {
        npu_index_.push_back(partition.npu ? npu++ : 0);
        if (partition.npu) on_npu_.insert(partition.outputs.begin(), partition.outputs.end());
    }
    for (const LayerMeta& layer : program_->layers())
        if (layer.trace)
            for (const TracePiece& piece : layer.trace->pieces) trace_points_.push_back({&layer, &piece});
    std::stable_sort(trace_points_.begin(), trace_points_.end(), [](const auto& a, const auto& b) {
        return a.piece->after_instruction < b.piece->after_instruction;
    });
    CpuPlan::Bindings prototypes = plan_.bind(nullptr);
    for (const std::string& name : program_->outputs()) {
        const int tensor = plan_.find(name);
        if (tensor < 0) throw FormatError("meta.outputs: '" + name + "' is not computed");
        output_prototypes_.push_back(prototypes.tensors[static_cast<std::size_t>(tensor)]);
        output_prototypes_.back().data = nullptr;
    }
    for (const std::string& name : program_->inputs())
        if (program_->tensor(name).nhwc && program_->tensor(name).shape.size() != 4)
            throw FormatError("meta.input_layout: '" + name + "' is NHWC but not of rank 4");
}

Session::~Session() {
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [this] { return in_flight_ == 0; });
}

std::unique_ptr<Session::Context> Session::create_context() const {
    auto context = std::make_unique<Context>();
    context->pool = MemoryPool::shared().acquire(program_->pool_size());
    context->arena = MemoryPool::shared().acquire(plan_.arena_bytes());
    context->device = device_->create_context();
    context->bindings = plan_.bind(context->arena.data());
    std::size_t inputs = program_->inputs().size();
    for (const PartitionMeta& partition : program_->partitions()) inputs = std::max(inputs, partition.inputs.size());
    context->inputs.reserve(inputs);
    return context;
}

std::unique_ptr<Session::Context> Session::acquire() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!free_.empty()) {
            ++in_flight_;
            auto context = std::move(free_.back());
            free_.pop_back();
            return context;
        }
        free_.reserve(++created_);  // so that giving it back allocates nothing
        ++in_flight_;
    }
    try {
        return create_context();
    } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex_);
        --created_;
        --in_flight_;
        idle_.notify_all();
        throw;
    }
}

void Session::release(std::unique_ptr<Context> context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(context));
    --in_flight_;
    idle_.notify_all();
}

void Session::warm_up(std::size_t count) {
    std::vector<std::unique_ptr<Context>> held;
    for (std::size_t i = 0; i < count; ++i) held.push_back(acquire());
    for (auto& context : held) release(std::move(context));
}

std::string Session::prometheus() const {
    return metrics_.prometheus("model=" + json::quote(program_->name()) + ",device=" + json::quote(device_name_));
}

// Checks one network input. Where the CPU reads it, its tensor then points to it, or to a N, C, H, W copy in
// the arena.
void Session::bind_input(Context& context, const std::string& name, const InputBuffer& input) const {
    const TensorMeta& meta = program_->tensor(name);
    const int index = plan_.find(name);
    Tensor& tensor = context.bindings.tensors[static_cast<std::size_t>(index)];
    const bool read_by_cpu = plan_.in_arena(index);
    const bool pixels = input.type == Type::kUint8 && tensor.type != Type::kUint8;
    const bool nhwc = meta.shape.size() == 4 && (meta.nhwc || input.nhwc || pixels);
    const Shape own(meta.shape);
    expect_shape(name, nhwc ? nhwc_shape(own) : own, input.shape);
    if (read_by_cpu) tensor.data = context.arena.data() + plan_.offset(index);
    if (pixels || (input.type == Type::kInt8 && tensor.type != Type::kInt8)) {
        if (!meta.npu || meta.npu->bf16 || (input.type == Type::kUint8 && !meta.npu->is_image()))
            throw ArgumentError("input '" + name + "': expected " + meta.dtype + ", found " +
                                cpu::type_name(input.type) +
                                (meta.npu ? "; the model takes preprocessed values here, not pixels" : ""));
        if (!read_by_cpu) return;
        store_npu_input(context, name);
        dequantise(*meta.npu, context.pool.data(), tensor.as<float>(), MapStrides::nchw(*meta.npu));
        return;
    }
    expect_type(name, tensor.type, input.type);
    if (!read_by_cpu) return;
    if (!nhwc) {
        tensor.data = const_cast<void*>(input.data);  // kernels never write their inputs
        return;
    }
    transpose_map(tensor.type, input.data, tensor.data, own.dim[0], own.dim[2] * own.dim[3], own.dim[1]);
}

// Writes a tensor that an NPU partition reads and the application or the CPU provided.
void Session::store_npu_input(Context& context, const std::string& name) const {
    const NpuTensor& t = *program_->tensor(name).npu;
    std::uint8_t* pool = context.pool.data();
    const auto& inputs = program_->inputs();
    const auto found = std::find(inputs.begin(), inputs.end(), name);
    if (found == inputs.end()) {
        const Tensor& tensor = context.bindings.tensors[static_cast<std::size_t>(plan_.find(name))];
        return quantise(t, name, tensor.as<float>(), MapStrides::nchw(t), pool);
    }
    const InputBuffer& input = context.inputs[static_cast<std::size_t>(found - inputs.begin())];
    const bool nhwc =
        program_->tensor(name).nhwc || input.nhwc || input.type == Type::kUint8;  // a vector is the same in both
    const MapStrides strides = nhwc ? MapStrides::nhwc(t) : MapStrides::nchw(t);
    if (input.type == Type::kUint8)
        store_pixels(t, static_cast<const std::uint8_t*>(input.data), strides, pool);
    else if (input.type == Type::kInt8)
        store_bytes(t, static_cast<const std::int8_t*>(input.data), strides, pool);
    else
        quantise(t, name, static_cast<const float*>(input.data), strides, pool);
}

void Session::load_npu_output(Context& context, const std::string& name) const {
    const int index = plan_.find(name);
    if (index < 0) return;  // only another NPU partition reads it
    const NpuTensor& t = *program_->tensor(name).npu;
    dequantise(t, context.pool.data(), context.bindings.tensors[static_cast<std::size_t>(index)].as<float>(),
               MapStrides::nchw(t));
}

namespace {

// Copies one piece of a layer's output into its place in `tensor`, [h, w, channels].
void copy_piece(const TracePoint& point, const TracePiece& piece, const std::uint8_t* memory, TraceTensor& tensor) {
    struct Wanted {
        std::size_t lane, channel;
    };
    std::vector<Wanted> wanted;
    // Blocks of other tensors between the tensor's own are not pad.
    std::vector<bool> used(piece.lane_count, true);
    for (std::size_t channel = 0; channel < point.lanes.size(); ++channel) {
        const auto lane = static_cast<std::size_t>(point.lanes[channel]);
        if (lane < piece.first_lane || lane >= piece.first_lane + piece.lane_count) continue;
        wanted.push_back({lane - piece.first_lane, channel});
        const std::size_t block = wanted.back().lane / 16 * 16;
        for (std::size_t l = block; l < std::min(block + 16, piece.lane_count); ++l) used[l] = false;
    }
    for (const Wanted& w : wanted) used[w.lane] = true;
    for (int y = 0; y < piece.rows; ++y)
        for (int x = 0; x < point.w; ++x) {
            const std::uint8_t* pixel = memory + piece.address + static_cast<std::size_t>(y) * piece.row_stride +
                                        static_cast<std::size_t>(x) * piece.pixel_stride;
            const std::size_t to = static_cast<std::size_t>(piece.first_row + y) * static_cast<std::size_t>(point.w) +
                                   static_cast<std::size_t>(x);
            const std::size_t bytes = point.lane_bytes;
            std::int8_t* out = tensor.data.data() + to * point.lanes.size() * bytes;
            for (const Wanted& w : wanted) std::memcpy(out + w.channel * bytes, pixel + w.lane * bytes, bytes);
            for (std::size_t byte = 0; byte < piece.lane_count * bytes; ++byte)
                if (!used[byte / bytes] && pixel[byte] != 0) ++tensor.pad_lane_errors;
        }
}

}  // namespace

TraceHook Session::trace_hook(std::vector<TraceTensor>& trace) const {
    const std::size_t first = trace.size();
    return [this, &trace, first](std::size_t instruction, const TraceMemory& memory) {
        auto it = std::lower_bound(
            trace_points_.begin(), trace_points_.end(), instruction,
            [](const auto& entry, std::size_t value) { return entry.piece->after_instruction < value; });
        for (; it != trace_points_.end() && it->piece->after_instruction == instruction; ++it) {
            const TracePoint& point = *it->layer->trace;
            auto tensor = std::find_if(trace.begin() + static_cast<std::ptrdiff_t>(first), trace.end(),
                                       [&](const TraceTensor& t) { return t.layer == it->layer; });
            if (tensor == trace.end()) {
                tensor = trace.emplace(trace.end());
                tensor->layer = it->layer;
                tensor->data.resize(static_cast<std::size_t>(point.h) * static_cast<std::size_t>(point.w) *
                                    point.lanes.size() * point.lane_bytes);
            }
            using Space = TracePoint::Space;
            copy_piece(point, *it->piece,
                       point.space == Space::kSram   ? memory.sram
                       : point.space == Space::kPool ? memory.pool
                                                     : memory.before_sum,
                       *tensor);
        }
    };
}

// What a device without hooks shows: the tensors that leave the partition, as they lie in the pool.
void Session::trace_outputs(const Context& context, std::size_t partition, std::vector<TraceTensor>& trace) const {
    for (const std::string& name : program_->partitions()[partition].outputs) {
        const NpuTensor& t = *program_->tensor(name).npu;
        for (const LayerMeta& layer : program_->layers()) {
            if (layer.tensor != name || !layer.trace || layer.trace->space == TracePoint::Space::kBeforeSum) continue;
            TracePoint point{TracePoint::Space::kPool, t.h, t.w, t.lanes, t.lane_count, t.bf16 ? 2u : 1u, {}};
            if (point.h != layer.trace->h || point.w != layer.trace->w ||
                point.lanes.size() != layer.trace->lanes.size())
                continue;  // a layer that writes part of the tensor
            const TracePiece whole{0, t.offset, t.row_stride, t.pixel_stride, 0, t.h, 0, t.lane_count};
            TraceTensor& tensor = trace.emplace_back();
            tensor.layer = &layer;
            tensor.data.resize(static_cast<std::size_t>(t.h) * static_cast<std::size_t>(t.w) * t.lanes.size() *
                               point.lane_bytes);
            copy_piece(point, whole, context.pool.data(), tensor);
            break;
        }
    }
}

void Session::run_npu(Context& context, std::size_t partition, const RunOptions& options) const {
    const bool hooked = options.trace && device_->traces();
    const TraceHook hook = hooked ? trace_hook(*options.trace) : TraceHook();
    device_->run(*context.device, npu_index_[partition], context.pool.data(), hook);
    if (options.trace && !hooked) trace_outputs(context, partition, *options.trace);
}

void Session::write_output(Context& context, const std::string& name, OutputBuffer& output) const {
    const Tensor& tensor = context.bindings.tensors[static_cast<std::size_t>(plan_.find(name))];
    output.type = tensor.type;
    output.shape = output.nhwc ? nhwc_shape(tensor.shape) : tensor.shape;
    if (output.capacity < tensor.bytes() || !output.data)
        throw ArgumentError("output '" + name + "': expected room for " + std::to_string(tensor.bytes()) +
                            " bytes, found " + std::to_string(output.data ? output.capacity : 0));
    if (output.nhwc && tensor.shape.rank == 4)
        transpose_map(tensor.type, tensor.data, output.data, tensor.shape.dim[0], tensor.shape.dim[1],
                      tensor.shape.dim[2] * tensor.shape.dim[3]);
    else if (tensor.bytes() > 0)
        std::memcpy(output.data, tensor.data, tensor.bytes());
}

void Session::run(const InputBuffer* inputs, std::size_t input_count, OutputBuffer* outputs, std::size_t output_count,
                  const RunOptions& options) {
    Lease lease(*this);
    if (input_count != program_->inputs().size() || output_count != program_->outputs().size())
        throw ArgumentError("model " + program_->name() + ": expected " + std::to_string(program_->inputs().size()) +
                            " inputs and " + std::to_string(program_->outputs().size()) + " outputs, found " +
                            std::to_string(input_count) + " and " + std::to_string(output_count));
    Context& context = lease.context();
    context.inputs.assign(inputs, inputs + input_count);
    for (std::size_t i = 0; i < input_count; ++i) bind_input(context, program_->inputs()[i], inputs[i]);
    const auto& partitions = program_->partitions();
    for (std::size_t p = 0; p < partitions.size(); ++p) {
        const auto begin = std::chrono::steady_clock::now();
        if (partitions[p].npu) {
            for (const std::string& name : partitions[p].inputs) {
                if (on_npu_.count(name)) continue;  // another NPU partition left it in the pool
                store_npu_input(context, name);
            }
            run_npu(context, p, options);
            for (const std::string& name : partitions[p].outputs) load_npu_output(context, name);
        } else {
            plan_.run(context.bindings, p, context.arena.data());
        }
        if (options.profile) {
            const auto end = std::chrono::steady_clock::now();
            options.profile->push_back({"partition " + std::to_string(p), partitions[p].npu ? "NPU" : "CPU",
                                        std::chrono::nanoseconds(begin - lease.start()).count(),
                                        std::chrono::nanoseconds(end - begin).count()});
        }
    }
    for (std::size_t i = 0; i < output_count; ++i) write_output(context, program_->outputs()[i], outputs[i]);
    lease.done();
}

}  // namespace npuforge
