// Worker threads behind the VART interface. Jobs are recycled: queueing and running one allocates nothing after
// warm-up.
#include "npuforge/runner.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace npuforge {

using cpu::Shape;
using cpu::Type;

enum class JobState { kFree, kQueued, kRunning, kDone };

struct Runner::Job {
    JobState state = JobState::kFree;
    std::uint32_t id = 0;
    int status = kOk;
    bool claimed = false;  ///< a thread is in wait() for it
    std::vector<InputBuffer> inputs;
    std::vector<OutputBuffer> outputs;
    std::string message;
};

namespace {

constexpr std::size_t kMessages = 64;
constexpr std::uint32_t kLargestId = 0x7fffffff;

std::vector<std::int32_t> dims_of(const TensorMeta& tensor) {
    std::vector<std::int32_t> dims;
    for (const std::int64_t dim : tensor.shape) dims.push_back(static_cast<std::int32_t>(dim));
    if (dims.size() == 4) dims = {dims[0], dims[2], dims[3], dims[1]};
    return dims;
}

std::string bin_of(const std::string& bundle) {
    struct stat info = {};
    if (stat(bundle.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return bundle + "/model.bin";
    return bundle;
}

// The buffer for tensor `index`: by name, else by position.
template <typename T>
const TensorBuffer& pick(const std::vector<TensorBuffer*>& buffers, const std::vector<T>& tensors, std::size_t index,
                         const char* what) {
    const TensorBuffer* found = nullptr;
    for (const TensorBuffer* buffer : buffers)
        if (buffer && buffer->name == tensors[index].name) found = buffer;
    if (!found && index < buffers.size() && buffers[index] && buffers[index]->name.empty()) found = buffers[index];
    if (!found) throw ArgumentError(std::string(what) + " '" + tensors[index].name + "': no buffer was given");
    if (!found->data)
        throw ArgumentError(std::string(what) + " '" + tensors[index].name + "': the buffer has no memory");
    return *found;
}

std::vector<std::size_t> order_of(const std::vector<std::string>& names, bool sorted) {
    std::vector<std::size_t> order(names.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (sorted)
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return names[a] < names[b]; });
    return order;
}

void check_bytes(const TensorBuffer& buffer, const std::string& name, const char* what) {
    const std::size_t needed = static_cast<std::size_t>(buffer.shape.count()) * cpu::type_bytes(buffer.type);
    if (buffer.bytes < needed)
        throw ArgumentError(std::string(what) + " '" + name + "': expected " + std::to_string(needed) +
                            " bytes, found " + std::to_string(buffer.bytes));
}

}  // namespace

std::unique_ptr<Runner> Runner::create_runner(const std::string& bundle, const std::string& mode, int threads) {
    SessionOptions options;
    if (mode != "run" && mode != "sim" && mode != "csim")
        throw ArgumentError("mode: expected run, sim or csim, found '" + mode + "'");
    options.device = mode == "csim" ? "csim" : "sim";
    options.threads = threads;
    return std::make_unique<Runner>(Session::open(bin_of(bundle), options), -1);
}

Runner::Runner(std::shared_ptr<Session> session, int partition, std::size_t workers)
    : session_(std::move(session)), partition_(partition) {
    if (workers == 0) throw ArgumentError("workers: expected 1 or more");
    describe();
    session_->warm_up(workers);
    queue_.resize(16);
    try {
        for (std::size_t i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
    } catch (...) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        queued_.notify_all();
        for (std::thread& worker : workers_) worker.join();
        throw;
    }
}

void Runner::describe() {
    const Program& program = session_->program();
    const bool whole = partition_ < 0;
    if (!whole && static_cast<std::size_t>(partition_) >= program.partitions().size())
        throw ArgumentError("partition: expected below " + std::to_string(program.partitions().size()) + ", found " +
                            std::to_string(partition_));
    const PartitionMeta* meta = whole ? nullptr : &program.partitions()[static_cast<std::size_t>(partition_)];
    const auto add = [&](std::vector<RunnerTensor>& list, const std::string& name, bool input) {
        const TensorMeta& tensor = program.tensor(name);
        RunnerTensor out;
        out.name = name;
        out.dims = dims_of(tensor);
        out.type = cpu::type_of(tensor.dtype, "meta.tensors['" + name + "']");
        if (tensor.npu) out.npu = tensor.npu.get();
        if (!whole && tensor.npu && (meta->npu || input) && !tensor.npu->bf16) out.type = Type::kInt8;
        if (whole && input && tensor.npu && tensor.npu->is_image()) out.type = Type::kUint8;
        list.push_back(std::move(out));
    };
    const auto& inputs = whole ? program.inputs() : meta->inputs;
    const auto& outputs = whole ? program.outputs() : meta->outputs;
    // A subgraph's tensors come sorted by name, as the vendor's get_sorted_input_tensors gives them; a whole network's
    // as in ONNX.
    input_order_ = order_of(inputs, !whole);
    output_order_ = order_of(outputs, !whole);
    for (const std::size_t i : input_order_) add(inputs_, inputs[i], true);
    for (const std::size_t i : output_order_) add(outputs_, outputs[i], false);
}

Runner::~Runner() {
    {
        std::unique_lock<std::mutex> lock(mutex_);
        stopping_ = true;
        for (; waiting_ > 0; --waiting_, head_ = (head_ + 1) % queue_.size()) {
            Job& job = *queue_[head_];
            job.state = JobState::kDone;
            job.status = kCancelled;
        }
        done_.notify_all();
    }
    queued_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return waiters_ == 0; });
}

std::pair<std::uint32_t, int> Runner::execute_async(const std::vector<TensorBuffer*>& inputs,
                                                    const std::vector<TensorBuffer*>& outputs) {
    std::unique_lock<std::mutex> lock(mutex_);
    Job* job = nullptr;
    for (const auto& candidate : jobs_)
        if (candidate->state == JobState::kFree) {
            job = candidate.get();
            break;
        }
    if (!job) {
        jobs_.push_back(std::make_unique<Job>());
        job = jobs_.back().get();
    }
    job->id = next_;
    next_ = next_ == kLargestId ? 0 : next_ + 1;
    try {
        job->inputs.resize(inputs_.size());
        job->outputs.resize(outputs_.size());
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            const TensorBuffer& buffer = pick(inputs, inputs_, i, "input");
            check_bytes(buffer, inputs_[i].name, "input");
            job->inputs[input_order_[i]] = {buffer.data, buffer.type, buffer.shape, buffer.nhwc};
        }
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            const TensorBuffer& buffer = pick(outputs, outputs_, i, "output");
            check_bytes(buffer, outputs_[i].name, "output");
            // What a CPU partition gives the NPU may be asked for as the NPU reads it.
            const bool quantised = partition_ >= 0 && outputs_[i].npu && buffer.type == Type::kInt8;
            if (buffer.type != outputs_[i].type && !quantised &&
                outputs_[i].type != Type::kInt8)  // int8 tensors give float32 as well
                throw ArgumentError("output '" + outputs_[i].name + "': type expected " +
                                    cpu::type_name(outputs_[i].type) + ", found " + cpu::type_name(buffer.type));
            job->outputs[output_order_[i]] = {buffer.data, buffer.bytes, buffer.type, buffer.shape, buffer.nhwc};
        }
        if (stopping_) throw ArgumentError("the runner is being destroyed");
    } catch (const std::exception& error) {
        remember(job->id, error.what());
        return {job->id, kFailed};
    }
    if (waiting_ == queue_.size()) {  // grow the ring
        std::vector<Job*> larger(2 * queue_.size());
        for (std::size_t i = 0; i < waiting_; ++i) larger[i] = queue_[(head_ + i) % queue_.size()];
        queue_.swap(larger);
        head_ = 0;
    }
    job->state = JobState::kQueued;
    job->status = kOk;
    job->claimed = false;
    queue_[(head_ + waiting_++) % queue_.size()] = job;
    session_->metrics().set_queue_depth(static_cast<std::int64_t>(waiting_));
    const std::uint32_t id = job->id;
    lock.unlock();
    queued_.notify_one();
    return {id, kOk};
}

void Runner::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        queued_.wait(lock, [this] { return waiting_ > 0 || stopping_; });
        if (waiting_ == 0) return;
        Job& job = *queue_[head_];
        head_ = (head_ + 1) % queue_.size();
        session_->metrics().set_queue_depth(static_cast<std::int64_t>(--waiting_));
        job.state = JobState::kRunning;
        lock.unlock();
        execute(job);
        lock.lock();
        job.state = JobState::kDone;
        done_.notify_all();
    }
}

void Runner::execute(Job& job) {
    try {
        if (partition_ < 0)
            session_->run(job.inputs.data(), job.inputs.size(), job.outputs.data(), job.outputs.size());
        else
            session_->run_partition(static_cast<std::size_t>(partition_), job.inputs.data(), job.inputs.size(),
                                    job.outputs.data(), job.outputs.size());
    } catch (const std::exception& error) {
        job.status = kFailed;
        job.message = error.what();
    } catch (...) {
        job.status = kFailed;
        job.message = "unknown exception";
    }
}

int Runner::finish(Job& job) {
    if (job.status == kFailed) remember(job.id, job.message);
    job.state = JobState::kFree;
    return job.status;
}

void Runner::remember(std::uint32_t job, const std::string& message) {
    if (messages_.size() == kMessages) messages_.erase(messages_.begin());
    messages_.emplace_back(job, message);
}

int Runner::wait(int job, int timeout_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
    Job* mine = nullptr;
    const auto look = [&] {
        if (mine) return mine->state == JobState::kDone;
        bool pending = false;
        for (const auto& candidate : jobs_) {
            if (candidate->state == JobState::kFree || candidate->claimed) continue;
            if (job >= 0 && candidate->id != static_cast<std::uint32_t>(job)) continue;
            pending = true;
            if (job >= 0 || candidate->state == JobState::kDone) {
                mine = candidate.get();
                mine->claimed = true;
                return mine->state == JobState::kDone;
            }
        }
        return !pending;  // nothing to wait for
    };
    ++waiters_;
    bool ready = true;
    if (timeout_ms < 0)
        done_.wait(lock, look);
    else
        ready = done_.wait_until(lock, deadline, look);
    int status = kUnknownJob;
    if (!ready) {
        if (mine) mine->claimed = false;
        status = kTimeout;
    } else if (mine) {
        status = finish(*mine);
    }
    if (--waiters_ == 0 && stopping_) done_.notify_all();
    return status;
}

std::string Runner::message(std::uint32_t job) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = messages_.rbegin(); it != messages_.rend(); ++it)
        if (it->first == job) return it->second;
    return "";
}

}  // namespace npuforge
