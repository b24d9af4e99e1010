// The VART interface: create_runner, get_input_tensors, get_output_tensors, execute_async, wait. Jobs queue up for
// worker threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "npuforge/session.hpp"

namespace npuforge {

/// What a runner takes or gives. Feature maps as N, H, W, C, unless `nhwc` says otherwise.
struct RunnerTensor {
    std::string name;
    std::vector<std::int32_t> dims;
    cpu::Type type = cpu::Type::kFloat32;  ///< int8 at an NPU partition's border; buffers may be float32 there as well
    const NpuTensor* npu = nullptr;        ///< scales of int8 tensors; lives as long as the runner
    bool border = false;                   ///< what the NPU reads or writes: int8, or bf16 where `npu->bf16`
    bool nhwc = true;                      ///< order of `dims`
    Filling filling = Filling::kPublic;    ///< of rows that the data decide
};

/// One tensor of a partition as an .xmodel declares it. `border`: the NPU's form, N, H, W, C; else the CPU operators',
/// in ONNX's order of axes, or in the application's for a network input. The name is that of the `.bin`, or, for the
/// CPU form of a tensor that has both, `<name>_float` (with `'` behind it where the network has that name itself).
struct Port {
    std::string name;
    bool border = false;
    bool inner = false;  ///< something in the file reads it
};
struct Ports {
    std::vector<Port> inputs, outputs;
};

/// The application's memory for one tensor; must stay valid until `wait` has returned. `shape` as the data lies.
struct TensorBuffer {
    std::string name;  ///< matched by name; empty: by position
    void* data = nullptr;
    std::size_t bytes = 0;
    cpu::Type type = cpu::Type::kFloat32;
    cpu::Shape shape;
    bool nhwc = true;   ///< four-dimensional data as N, H, W, C; false: in ONNX's order of axes. Ports have their own
    bool bf16 = false;  ///< elements are bf16, two bytes; `type` is then kFloat32
    std::size_t element_bytes() const { return bf16 ? 2 : cpu::type_bytes(type); }
};

class Runner {
  public:
    /// Results of `wait` (and the second value of `execute_async`).
    enum Status : int { kOk = 0, kFailed = 1, kTimeout = 2, kUnknownJob = 3, kCancelled = 4 };

    /// `bundle`: a `.bin` or a build folder with model.bin. `mode`: run or sim (fast simulator), csim (the HLS code
    /// itself).
    static std::unique_ptr<Runner> create_runner(const std::string& bundle, const std::string& mode = "run",
                                                 int threads = 1);

    /// `partition`: index into Program::partitions, or -1 for the whole model. `ports`: what it takes and gives, in
    /// this order; without them the partition's own inputs and outputs by name. FormatError for a port that is none.
    Runner(std::shared_ptr<Session> session, int partition, std::size_t workers = 1, const Ports* ports = nullptr);
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;
    /// Cancels jobs that wait, waits for those that run.
    ~Runner();

    const std::vector<RunnerTensor>& get_input_tensors() const { return inputs_; }
    const std::vector<RunnerTensor>& get_output_tensors() const { return outputs_; }
    Session& session() { return *session_; }

    /// Queues a job: (job id, status). Ids are distinct until 2^31 jobs have been queued. A status other than kOk means
    /// that nothing was queued; `message(job)` says why. Thread-safe.
    /// Buffers have the tensor's type or float32; float32 at the NPU's border means what the int8 (bf16) value does,
    /// and whole numbers elsewhere. bool tensors take and give uint8 as well.
    std::pair<std::uint32_t, int> execute_async(const std::vector<TensorBuffer*>& inputs,
                                                const std::vector<TensorBuffer*>& outputs);
    /// Waits for a job (negative: any finished or the next to finish). `timeout_ms` < 0: for ever, 0: only looks. A job
    /// can be waited for once.
    int wait(int job, int timeout_ms = -1);
    /// Why the job failed; empty if it did not. Kept for the 64 failures waited for last.
    std::string message(std::uint32_t job) const;

  private:
    struct Job;

    void work();
    void execute(Job& job);
    int finish(Job& job);
    void remember(std::uint32_t job, const std::string& message);
    void describe(const Ports* ports);
    void take_buffers(Job& job, const std::vector<TensorBuffer*>& inputs, const std::vector<TensorBuffer*>& outputs);

    std::shared_ptr<Session> session_;
    int partition_;
    bool on_cpu_ = false;       ///< a CPU partition
    bool fixed_order_ = false;  ///< ports were given: buffers have their order of axes
    std::vector<RunnerTensor> inputs_, outputs_;
    std::vector<std::size_t> input_order_, output_order_;  ///< index in the partition's (or network's) own list
    std::size_t output_count_ = 0;                         ///< of that list

    mutable std::mutex mutex_;
    std::condition_variable queued_, done_;
    std::vector<std::unique_ptr<Job>> jobs_;  ///< all that exist; recycled
    std::vector<Job*> queue_;                 ///< a ring: `head_` .. `head_ + waiting_`
    std::size_t head_ = 0, waiting_ = 0, waiters_ = 0;
    std::uint32_t next_ = 0;
    bool stopping_ = false;
    std::vector<std::pair<std::uint32_t, std::string>> messages_;
    std::vector<std::thread> workers_;
};

}  // namespace npuforge
