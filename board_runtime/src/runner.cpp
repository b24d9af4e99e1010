// Worker threads behind the VART interface. Jobs are recycled: queueing and running one allocates nothing after
// warm-up.
#include "npuforge/runner.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "runner_buffers.hpp"

namespace npuforge {

using cpu::Shape;
using cpu::Type;

enum class JobState { kFree, kQueued, kRunning, kDone };

struct Runner::Job {
    JobState state = JobState::kFree;
    std::uint32_t id = 0;
    int status = kOk;
    bool claimed = false;                  ///< a thread is in wait() for it
    std::vector<JobBuffer> given, wanted;  ///< by index of inputs_, outputs_
    std::vector<InputBuffer> inputs;       ///< by index in the partition's (or network's) own lists
    std::vector<OutputBuffer> outputs;
    std::string message;
};

namespace {

constexpr std::size_t kMessages = 64;
constexpr std::uint32_t kLargestId = 0x7fffffff;

std::vector<std::int32_t> dims_of(const TensorMeta& tensor, bool nhwc) {
    std::vector<std::int32_t> dims;
    for (const std::int64_t dim : tensor.shape) dims.push_back(static_cast<std::int32_t>(dim));
    if (nhwc && dims.size() == 4) dims = {dims[0], dims[2], dims[3], dims[1]};
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
    return *found;
}

std::vector<std::size_t> order_of(const std::vector<std::string>& names, bool sorted) {
    std::vector<std::size_t> order(names.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (sorted)
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return names[a] < names[b]; });
    return order;
}

// Where a port's tensor is in a partition's list: by its own name, else by that of which it is the CPU form.
std::size_t position_of(const Port& port, const std::vector<std::string>& names) {
    std::string plain = port.name.substr(0, port.name.find_last_not_of('\'') + 1);
    constexpr char suffix[] = "_float";
    constexpr std::size_t length = sizeof suffix - 1;
    const bool named = plain.size() > length && plain.compare(plain.size() - length, length, suffix) == 0;
    plain.resize(plain.size() - (named ? length : 0));
    for (const std::string& name : {port.name, plain}) {
        const auto found = std::find(names.begin(), names.end(), name);
        if (found != names.end() && (name == port.name || (named && !port.border)))
            return static_cast<std::size_t>(found - names.begin());
    }
    throw FormatError("tensor " + port.name + " is not in its .bin; compile the network again");
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

Runner::Runner(std::shared_ptr<Session> session, int partition, std::size_t workers, const Ports* ports)
    : session_(std::move(session)), partition_(partition), fixed_order_(ports != nullptr) {
    if (workers == 0) throw ArgumentError("workers: expected 1 or more");
    describe(ports);
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

void Runner::describe(const Ports* ports) {
    const Program& program = session_->program();
    const bool whole = partition_ < 0;
    if (!whole && static_cast<std::size_t>(partition_) >= program.partitions().size())
        throw ArgumentError("partition: expected below " + std::to_string(program.partitions().size()) + ", found " +
                            std::to_string(partition_));
    const PartitionMeta* meta = whole ? nullptr : &program.partitions()[static_cast<std::size_t>(partition_)];
    on_cpu_ = meta && !meta->npu;
    const auto add = [&](std::vector<RunnerTensor>& list, const std::string& name, bool input, const Port* port) {
        const TensorMeta& tensor = program.tensor(name);
        RunnerTensor out;
        out.name = port ? port->name : name;
        out.type = cpu::type_of(tensor.dtype, "meta.tensors['" + name + "']");
        if (tensor.npu) out.npu = tensor.npu.get();
        out.border = port ? port->border : !whole && tensor.npu && (meta->npu || input);
        if (port && (port->border ? !tensor.npu : meta->npu))
            throw FormatError("tensor " + port->name + ": its type is not that of its .bin; compile the network again");
        out.nhwc = !port || out.border || (input && tensor.nhwc);
        out.dims = dims_of(tensor, out.nhwc);
        if (out.border && !tensor.npu->bf16) out.type = Type::kInt8;
        const auto& results = program.outputs();
        const bool inner = port ? port->inner : std::find(results.begin(), results.end(), name) == results.end();
        out.filling = inner ? Filling::kInner : Filling::kPublic;
        if (whole && input && tensor.npu && tensor.npu->is_image()) out.type = Type::kUint8;
        list.push_back(std::move(out));
    };
    const auto& inputs = whole ? program.inputs() : meta->inputs;
    const auto& outputs = whole ? program.outputs() : meta->outputs;
    output_count_ = outputs.size();
    if (ports) {
        for (const Port& port : ports->inputs) {
            input_order_.push_back(position_of(port, inputs));
            add(inputs_, inputs[input_order_.back()], true, &port);
        }
        for (const Port& port : ports->outputs) {
            output_order_.push_back(position_of(port, outputs));
            add(outputs_, outputs[output_order_.back()], false, &port);
        }
        for (const auto& [order, names] : {std::make_pair(input_order_, inputs), {output_order_, outputs}})
            for (std::size_t i = 0; i < names.size(); ++i)
                if (std::find(order.begin(), order.end(), i) == order.end())
                    throw FormatError("tensor " + names[i] + " of the .bin is not in its subgraph; compile again");
        return;
    }
    // A subgraph's tensors come sorted by name, as the vendor's get_sorted_input_tensors gives them; a whole network's
    // as in ONNX.
    input_order_ = order_of(inputs, !whole);
    output_order_ = order_of(outputs, !whole);
    for (const std::size_t i : input_order_) add(inputs_, inputs[i], true, nullptr);
    for (const std::size_t i : output_order_) add(outputs_, outputs[i], false, nullptr);
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
        job->outputs.resize(output_count_);
        take_buffers(*job, inputs, outputs);
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

void Runner::take_buffers(Job& job, const std::vector<TensorBuffer*>& inputs,
                          const std::vector<TensorBuffer*>& outputs) {
    const JobBuffer::Of of = partition_ < 0 ? JobBuffer::Of::kWhole
                             : on_cpu_      ? JobBuffer::Of::kCpu
                                            : JobBuffer::Of::kNpu;
    job.given.resize(inputs_.size());
    job.wanted.resize(outputs_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const TensorBuffer& buffer = pick(inputs, inputs_, i, "input");
        job.given[i].take(inputs_[i], buffer, fixed_order_ ? inputs_[i].nhwc : buffer.nhwc, of, true);
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const TensorBuffer& buffer = pick(outputs, outputs_, i, "output");
        job.wanted[i].take(outputs_[i], buffer, fixed_order_ ? outputs_[i].nhwc : buffer.nhwc, of, false);
    }
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
        for (std::size_t i = 0; i < job.given.size(); ++i)
            job.inputs[input_order_[i]] =
                job.given[i].direct() ? job.given[i].direct_input() : job.given[i].converted_input();
        // A tensor that is asked for in two forms is written once, into a buffer of the session's form if there is one.
        std::fill(job.outputs.begin(), job.outputs.end(), OutputBuffer());
        for (const bool direct : {true, false})
            for (std::size_t i = 0; i < job.wanted.size(); ++i) {
                OutputBuffer& output = job.outputs[output_order_[i]];
                if (job.wanted[i].direct() == direct && !output.data)
                    output = direct ? job.wanted[i].direct_output() : job.wanted[i].session_output();
            }
        if (partition_ < 0)
            session_->run(job.inputs.data(), job.inputs.size(), job.outputs.data(), job.outputs.size());
        else
            session_->run_partition(static_cast<std::size_t>(partition_), job.inputs.data(), job.inputs.size(),
                                    job.outputs.data(), job.outputs.size());
        for (std::size_t i = 0; i < job.wanted.size(); ++i)
            if (!job.wanted[i].direct()) job.wanted[i].fill_from(job.outputs[output_order_[i]]);
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
