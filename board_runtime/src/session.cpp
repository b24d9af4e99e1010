// Runs a whole model: partitions in order, contexts recycled, results and errors counted.
#include "npuforge/session.hpp"

#include <algorithm>
#include <cstring>

#include "npuforge/border.hpp"

namespace npuforge {

using cpu::Shape;
using cpu::Tensor;
using cpu::Type;

/// What one run in flight needs: the pool of the NPU, the arena of the CPU partitions, the device's own state.
struct Session::Context {
    MemoryPool::Buffer pool, arena;
    std::unique_ptr<DeviceContext> device;
    CpuPlan::Bindings bindings;
    std::vector<InputBuffer>
        inputs;  ///< by index of Program::inputs (run) or of the partition's inputs (run_partition)
};

/// A context for the duration of one run; counts the run and gives the context back whatever happens.
class Session::Lease {
  public:
    explicit Lease(Session& session) : session_(session), start_(std::chrono::steady_clock::now()) {
        session.metrics_.enter();
        try {
            context_ = session.acquire();
        } catch (...) {
            session.metrics_.leave();
            session.metrics_.record({}, true);
            throw;
        }
    }
    ~Lease() {
        session_.metrics_.record(std::chrono::steady_clock::now() - start_, !done_);
        session_.metrics_.leave();
        session_.release(std::move(context_));
    }
    Context& context() { return *context_; }
    std::chrono::steady_clock::time_point start() const { return start_; }
    void done() { done_ = true; }

  private:
    Session& session_;
    std::chrono::steady_clock::time_point start_;
    std::unique_ptr<Context> context_;
    bool done_ = false;
};

namespace {

std::unique_ptr<Device> make_device([[maybe_unused]] const std::shared_ptr<const Program>& program,
                                    const SessionOptions& options) {
    if (options.threads < 1)
        throw ArgumentError("threads: expected 1 or more, found " + std::to_string(options.threads));
    if (options.device == "sim") {
#ifdef NPUFORGE_HAVE_SIM
        return make_sim_device(Program::device_program(program), options.threads);
#else
        throw ArgumentError("device sim: this build has none");
#endif
    }
    if (options.device == "csim") {
#ifdef NPUFORGE_HAVE_CSIM
        return make_csim_device(Program::device_program(program));
#else
        throw ArgumentError("device csim: this build has none");
#endif
    }
    throw ArgumentError("device: expected sim or csim, found '" + options.device + "'");
}

// The bytes of a feature map in N, C, H, W as N, H, W, C, or the other way round.
void transpose_map(const float* from, float* to, std::int64_t outer, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t n = 0; n < outer; ++n, from += rows * columns, to += rows * columns)
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
}

Shape nhwc_shape(const Shape& s) { return s.rank == 4 ? Shape{s.dim[0], s.dim[2], s.dim[3], s.dim[1]} : s; }

void expect(const std::string& name, const char* what, const std::string& expected, const std::string& found) {
    if (expected != found)
        throw ArgumentError("input '" + name + "': " + what + " expected " + expected + ", found " + found);
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
        if (layer.trace) trace_points_.emplace_back(layer.trace->after_instruction, &layer);
    std::stable_sort(trace_points_.begin(), trace_points_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
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

// Checks one network input and lets its CPU tensor point to it (or to an N, C, H, W copy).
void Session::bind_input(Context& context, const std::string& name, const InputBuffer& input) const {
    const TensorMeta& meta = program_->tensor(name);
    const int index = plan_.find(name);
    Tensor& tensor = context.bindings.tensors[static_cast<std::size_t>(index)];
    const bool stored = plan_.in_arena(index);
    const bool nhwc = meta.nhwc || input.nhwc || input.type == Type::kUint8;
    const Shape own(meta.shape);
    expect(name, "shape", (nhwc ? nhwc_shape(own) : own).text(), input.shape.text());
    if (input.type == Type::kUint8 || input.type == Type::kInt8) {
        if (!meta.npu || (input.type == Type::kUint8 && !meta.npu->is_image()))
            throw ArgumentError("input '" + name + "': expected " + meta.dtype + ", found " +
                                cpu::type_name(input.type) +
                                (meta.npu ? "; the model takes preprocessed values here, not pixels" : ""));
        if (!stored) {
            tensor.data = nullptr;  // only the NPU reads it
            return;
        }
        // The CPU partition reads it as well: real values of the pixels.
        store_npu_input(context, name);
        dequantise(*meta.npu, context.pool.data(), tensor.as<float>(), MapStrides::nchw(*meta.npu));
        return;
    }
    expect(name, "type", meta.dtype, cpu::type_name(input.type));
    if (!stored && !nhwc) {
        tensor.data = const_cast<void*>(input.data);  // kernels never write their inputs
    } else if (nhwc && stored) {
        const std::int64_t map = own.dim[2] * own.dim[3];
        if (tensor.type != Type::kFloat32) throw ArgumentError("input '" + name + "': only float32 may be N, H, W, C");
        transpose_map(static_cast<const float*>(input.data), tensor.as<float>(), own.dim[0], map, own.dim[1]);
    } else {
        tensor.data = nullptr;
    }
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
    const bool nhwc = program_->tensor(name).nhwc || input.nhwc || input.type == Type::kUint8;
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

TraceHook Session::trace_hook(std::vector<TraceTensor>& trace) const {
    return [this, &trace](std::size_t instruction, const std::uint8_t* sram, const std::uint8_t* pool) {
        auto it = std::lower_bound(trace_points_.begin(), trace_points_.end(), instruction,
                                   [](const auto& entry, std::size_t value) { return entry.first < value; });
        for (; it != trace_points_.end() && it->first == instruction; ++it) {
            const TracePoint& point = *it->second->trace;
            const std::uint8_t* base = (point.in_sram ? sram : pool) + point.address;
            TraceTensor tensor;
            tensor.layer = it->second;
            tensor.data.resize(static_cast<std::size_t>(point.h) * static_cast<std::size_t>(point.w) *
                               point.lanes.size());
            // Blocks of other tensors between the tensor's own are not pad.
            std::vector<bool> used(point.lane_count, true);
            for (const std::int32_t lane : point.lanes) {
                const std::size_t block = static_cast<std::size_t>(lane) / 16 * 16;
                for (std::size_t l = block; l < std::min(block + 16, point.lane_count); ++l) used[l] = false;
            }
            for (const std::int32_t lane : point.lanes) used[static_cast<std::size_t>(lane)] = true;
            std::int8_t* out = tensor.data.data();
            for (int y = 0; y < point.h; ++y)
                for (int x = 0; x < point.w; ++x) {
                    const std::uint8_t* pixel = base + static_cast<std::size_t>(y) * point.row_stride +
                                                static_cast<std::size_t>(x) * point.pixel_stride;
                    for (const std::int32_t lane : point.lanes) *out++ = static_cast<std::int8_t>(pixel[lane]);
                    for (std::size_t lane = 0; lane < point.lane_count; ++lane)
                        if (!used[lane] && pixel[lane] != 0) ++tensor.pad_lane_errors;
                }
            trace.push_back(std::move(tensor));
        }
    };
}

void Session::run_npu(Context& context, std::size_t partition, const RunOptions& options) const {
    const TraceHook hook = options.trace ? trace_hook(*options.trace) : TraceHook();
    device_->run(*context.device, npu_index_[partition], context.pool.data(), hook);
}

void Session::write_output(Context& context, const std::string& name, OutputBuffer& output) const {
    const Tensor& tensor = context.bindings.tensors[static_cast<std::size_t>(plan_.find(name))];
    output.type = tensor.type;
    output.shape = output.nhwc ? nhwc_shape(tensor.shape) : tensor.shape;
    if (output.capacity < tensor.bytes() || !output.data)
        throw ArgumentError("output '" + name + "': expected room for " + std::to_string(tensor.bytes()) +
                            " bytes, found " + std::to_string(output.data ? output.capacity : 0));
    const Tensor* source = &tensor;
    const auto& inputs = program_->inputs();
    const auto found = std::find(inputs.begin(), inputs.end(), name);
    if (!source->data && found != inputs.end())
        throw ArgumentError("output '" + name + "' is a network input handed in as pixels: read it from there");
    if (output.nhwc && tensor.shape.rank == 4 && tensor.type == Type::kFloat32)
        transpose_map(source->as<float>(), static_cast<float*>(output.data), tensor.shape.dim[0], tensor.shape.dim[1],
                      tensor.shape.dim[2] * tensor.shape.dim[3]);
    else if (tensor.bytes() > 0)
        std::memcpy(output.data, source->data, tensor.bytes());
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

void Session::run_partition(std::size_t partition, const InputBuffer* inputs, std::size_t input_count,
                            OutputBuffer* outputs, std::size_t output_count) {
    if (partition >= program_->partitions().size())
        throw ArgumentError("partition: expected below " + std::to_string(program_->partitions().size()) + ", found " +
                            std::to_string(partition));
    const PartitionMeta& meta = program_->partitions()[partition];
    Lease lease(*this);
    if (input_count != meta.inputs.size() || output_count != meta.outputs.size())
        throw ArgumentError("partition " + std::to_string(partition) + ": expected " +
                            std::to_string(meta.inputs.size()) + " inputs and " + std::to_string(meta.outputs.size()) +
                            " outputs, found " + std::to_string(input_count) + " and " + std::to_string(output_count));
    Context& context = lease.context();
    for (std::size_t i = 0; i < input_count; ++i) {
        if (meta.npu)
            store_partition_input(context, meta.inputs[i], inputs[i]);
        else
            copy_partition_input(context, meta.inputs[i], inputs[i]);
    }
    if (meta.npu)
        run_npu(context, partition, {});
    else
        plan_.run(context.bindings, partition, context.arena.data());
    for (std::size_t i = 0; i < output_count; ++i) {
        if (meta.npu)
            load_partition_output(context, meta.outputs[i], outputs[i]);
        else
            write_output(context, meta.outputs[i], outputs[i]);
    }
    lease.done();
}

// One input of an NPU partition alone: float32, int8, or pixels.
void Session::store_partition_input(Context& context, const std::string& name, const InputBuffer& input) const {
    const NpuTensor& t = *program_->tensor(name).npu;
    const bool nhwc = input.nhwc || program_->tensor(name).nhwc || input.type == Type::kUint8;
    const Shape own(program_->tensor(name).shape);
    expect(name, "shape", (nhwc ? nhwc_shape(own) : own).text(), input.shape.text());
    const MapStrides strides = nhwc ? MapStrides::nhwc(t) : MapStrides::nchw(t);
    if (input.type == Type::kFloat32)
        quantise(t, name, static_cast<const float*>(input.data), strides, context.pool.data());
    else if (input.type == Type::kInt8)
        store_bytes(t, static_cast<const std::int8_t*>(input.data), strides, context.pool.data());
    else if (input.type == Type::kUint8 && t.is_image())
        store_pixels(t, static_cast<const std::uint8_t*>(input.data), strides, context.pool.data());
    else
        throw ArgumentError("input '" + name + "': type expected float32 or int8" +
                            (t.is_image() ? " or uint8 pixels" : "") + ", found " + cpu::type_name(input.type));
}

void Session::load_partition_output(Context& context, const std::string& name, OutputBuffer& output) const {
    const NpuTensor& t = *program_->tensor(name).npu;
    const Shape own(program_->tensor(name).shape);
    output.shape = output.nhwc ? nhwc_shape(own) : own;
    const MapStrides strides = output.nhwc ? MapStrides::nhwc(t) : MapStrides::nchw(t);
    if (output.type != Type::kFloat32 && output.type != Type::kInt8)
        throw ArgumentError("output '" + name + "': type expected float32 or int8, found " +
                            std::string(cpu::type_name(output.type)));
    const std::size_t bytes = static_cast<std::size_t>(own.count()) * cpu::type_bytes(output.type);
    if (!output.data || output.capacity < bytes)
        throw ArgumentError("output '" + name + "': expected room for " + std::to_string(bytes) + " bytes, found " +
                            std::to_string(output.data ? output.capacity : 0));
    if (output.type == Type::kFloat32)
        dequantise(t, context.pool.data(), static_cast<float*>(output.data), strides);
    else
        load_bytes(t, context.pool.data(), static_cast<std::int8_t*>(output.data), strides);
}

// One input of a CPU partition alone.
void Session::copy_partition_input(Context& context, const std::string& name, const InputBuffer& input) const {
    const int index = plan_.find(name);
    if (index < 0) throw ArgumentError("input '" + name + "' is not read by the CPU partition");
    Tensor& tensor = context.bindings.tensors[static_cast<std::size_t>(index)];
    if (tensor.constant) return;
    const TensorMeta* meta = nullptr;
    if (const auto known = program_->tensors().find(name); known != program_->tensors().end()) meta = &known->second;
    if (input.type == Type::kInt8 && tensor.type == Type::kFloat32 && meta && meta->npu) {  // as the NPU left it
        const NpuTensor& t = *meta->npu;
        if (!plan_.in_arena(index)) throw ArgumentError("input '" + name + "': expected float32");
        expect(name, "shape", (input.nhwc ? nhwc_shape(tensor.shape) : tensor.shape).text(), input.shape.text());
        dequantise_bytes(t, static_cast<const std::int8_t*>(input.data),
                         input.nhwc ? MapStrides::nhwc(t) : MapStrides::nchw(t), tensor.as<float>());
        return;
    }
    expect(name, "type", cpu::type_name(tensor.type), cpu::type_name(input.type));
    expect(name, "shape", (input.nhwc ? nhwc_shape(tensor.shape) : tensor.shape).text(), input.shape.text());
    const bool transposed = input.nhwc && tensor.shape.rank == 4;
    if (!plan_.in_arena(index)) {
        if (transposed) throw ArgumentError("input '" + name + "': expected as N, C, H, W");
        tensor.data = const_cast<void*>(input.data);  // kernels never write their inputs
    } else if (transposed) {
        const std::int64_t map = tensor.shape.dim[2] * tensor.shape.dim[3];
        transpose_map(static_cast<const float*>(input.data), tensor.as<float>(), tensor.shape.dim[0], map,
                      tensor.shape.dim[1]);
    } else {
        std::memcpy(tensor.data, input.data, tensor.bytes());
    }
}

}  // namespace npuforge
