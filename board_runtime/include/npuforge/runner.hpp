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

/// What a runner takes or gives. Feature maps as N, H, W, C.
struct RunnerTensor {
    std::string name;
    std::vector<std::int32_t> dims;
    cpu::Type type = cpu::Type::kFloat32;  ///< int8 at an NPU partition's border; buffers may be float32 there as well
    const NpuTensor* npu = nullptr;        ///< scales of int8 tensors; lives as long as the runner
};

/// The application's memory for one tensor; must stay valid until `wait` has returned. `shape` as the data lies.
struct TensorBuffer {
    std::string name;  ///< matched by name; empty: by position
    void* data = nullptr;
    std::size_t bytes = 0;
    cpu::Type type = cpu::Type::kFloat32;
    cpu::Shape shape;
    bool nhwc = true;  ///< four-dimensional data as N, H, W, C; false: in ONNX's order of axes
};

class Runner {
  public:
    /// Results of `wait` (and the second value of `execute_async`).
    enum Status : int { kOk = 0, kFailed = 1, kTimeout = 2, kUnknownJob = 3, kCancelled = 4 };

    /// `bundle`: a `.bin` or a build folder with model.bin. `mode`: run or sim (fast simulator), csim (the HLS code
    /// itself).
    static std::unique_ptr<Runner> create_runner(const std::string& bundle, const std::string& mode = "run",
                                                 int threads = 1);

    /// `partition`: index into Program::partitions, or -1 for the whole model.
    Runner(std::shared_ptr<Session> session, int partition, std::size_t workers = 1);
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;
    /// Cancels jobs that wait, waits for those that run.
    ~Runner();

    const std::vector<RunnerTensor>& get_input_tensors() const { return inputs_; }
    const std::vector<RunnerTensor>& get_output_tensors() const { return outputs_; }
    Session& session() { return *session_; }

    /// Queues a job: (job id, status). Ids are distinct until 2^31 jobs have been queued. A status other than kOk means
    /// that nothing was queued; `message(job)` says why. Thread-safe.
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
    void describe();

    std::shared_ptr<Session> session_;
    int partition_;
    std::vector<RunnerTensor> inputs_, outputs_;
    std::vector<std::size_t> input_order_, output_order_;  ///< index in the partition's (or network's) own list

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
