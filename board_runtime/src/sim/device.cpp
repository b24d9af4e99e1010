// Owns the simulator device: contexts, the run of a schedule by several threads, trace hooks, errors during a run.
#include "npuforge/device.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "npuforge/sim.hpp"
#include "plan.hpp"
#include "refuse.hpp"
#include "team.hpp"

namespace npuforge::sim {
namespace {

constexpr std::size_t kAlignment = 64;

struct AlignedDelete {
    void operator()(std::uint8_t* p) const { ::operator delete[](p, std::align_val_t{kAlignment}); }
};
using AlignedBytes = std::unique_ptr<std::uint8_t[], AlignedDelete>;

AlignedBytes allocate(std::size_t bytes) {
    const std::size_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;
    AlignedBytes memory(static_cast<std::uint8_t*>(::operator new[](rounded, std::align_val_t{kAlignment})));
    std::memset(memory.get(), 0, rounded);
    return memory;
}

// One run of one schedule. Each thread works through its own queue of chunks, in program order; a chunk is taken only
// when the tasks that it depends on are complete, and a thread that would have to wait takes chunks of others. The
// oldest chunk not done is ready, and is being computed or at the head of a queue: no deadlock, whichever threads take
// part.
class Run {
  public:
    Run(std::size_t most_tasks, int threads)
        : done_(new std::atomic<int>[most_tasks]),
          lanes_(new Lane[static_cast<std::size_t>(threads)]),
          threads_(threads) {}

    void start(const Schedule& schedule, const Memory& memory, const TraceHook* hook) {
        schedule_ = &schedule;
        memory_ = memory;
        hook_ = hook;
        hooked_ = 0;
        error_ = nullptr;
        failed_ = false;
        released_ = hook == nullptr ? static_cast<int>(schedule.tasks.size()) : 0;
        for (int t = 0; t < threads_; ++t) {
            lane(t).next = 0;
            lane(t).present = false;
        }
        for (std::size_t t = 0; t < schedule.tasks.size(); ++t) done_[t].store(0, std::memory_order_relaxed);
    }

    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

    // Thread 0 also calls the hook, in program order; other threads stay behind it.
    void work(int thread, std::uint8_t* scratch) {
        int complete = 0;  // tasks [0, complete) are known to be complete
        lane(thread).present = true;
        while (!exhausted()) {
            if (thread == 0 && hook_ != nullptr) call_hooks(&complete);
            if (take(thread, thread, scratch, &complete)) continue;
            // Nothing of its own: others' chunks at once where the other is not there, else after giving it a moment.
            const auto help = [&] {
                for (int t = 1; t < threads_; ++t)
                    if (take((thread + t) % threads_, thread, scratch, &complete)) return true;
                return false;
            };
            const auto own = [&] {
                return exhausted() || (thread == 0 && hook_ready(&complete)) || ready(thread, &complete);
            };
            if (!everyone_present() && help()) continue;
            if (pause_until(own, kMoment) || help()) continue;
            wait([&] {
                for (int t = 0; t < threads_; ++t)
                    if (ready(t, &complete)) return true;
                return own();
            });
        }
        if (thread == 0 && hook_ != nullptr) {
            const int all = static_cast<int>(schedule_->tasks.size());
            while (hooked_ < all) {
                wait([&] { return hook_ready(&complete); });
                call_hooks(&complete);
            }
        }
    }

  private:
    static constexpr int kSpinMicroseconds = 60;  // several times a chunk
    static constexpr int kMoment = 40;            // pauses: about a microsecond

    struct alignas(64) Lane {
        std::atomic<int> next{0};          ///< first item of the queue that nobody has taken
        std::atomic<bool> present{false};  ///< the thread takes part in this run
    };
    Lane& lane(int thread) const { return lanes_[static_cast<std::size_t>(thread)]; }
    const std::vector<Item>& queue(int thread) const { return schedule_->queues[static_cast<std::size_t>(thread)]; }

    bool exhausted() const {
        for (int t = 0; t < threads_; ++t)
            if (lane(t).next < static_cast<int>(queue(t).size())) return false;
        return true;
    }
    bool everyone_present() const {
        for (int t = 0; t < threads_; ++t)
            if (!lane(t).present.load(std::memory_order_relaxed)) return false;
        return true;
    }
    bool is_complete(int last, int* complete) const {
        while (*complete <= last && done_[*complete] == schedule_->tasks[static_cast<std::size_t>(*complete)].chunks)
            ++*complete;
        return *complete > last;
    }
    // Whether the head of a queue can be computed now.
    bool ready(int owner, int* complete) const {
        const int head = lane(owner).next;
        if (head >= static_cast<int>(queue(owner).size())) return false;
        const int task = queue(owner)[static_cast<std::size_t>(head)].task;
        return released_ >= task && is_complete(schedule_->tasks[static_cast<std::size_t>(task)].wait_for, complete);
    }
    // Computes the head of a queue if it is ready and nobody was faster.
    bool take(int owner, int thread, std::uint8_t* scratch, int* complete) {
        int head = lane(owner).next;
        if (head >= static_cast<int>(queue(owner).size())) return false;
        const Item item = queue(owner)[static_cast<std::size_t>(head)];
        const Task& task = schedule_->tasks[static_cast<std::size_t>(item.task)];
        if (released_ < item.task || !is_complete(task.wait_for, complete)) return false;
        if (!lane(owner).next.compare_exchange_strong(head, head + 1)) return owner == thread;  // its own: look again
        if (!failed_.load(std::memory_order_relaxed)) {
            try {
                task.step->run(memory_, scratch, item.begin, item.end);
            } catch (...) {
                fail();
            }
        }
        ++done_[item.task];
        wake();
        return true;
    }

    // Spins for as long as a chunk usually takes, then sleeps: on a busy machine the awaited thread may not even be
    // running.
    template <class Ready>
    void wait(Ready ready) {
        if (spin_until(ready, kSpinMicroseconds)) return;
        std::unique_lock<std::mutex> lock(sleep_mutex_);
        ++sleepers_;
        wake_.wait(lock, ready);
        --sleepers_;
    }
    void wake() {
        if (sleepers_ == 0) return;
        const std::lock_guard<std::mutex> lock(sleep_mutex_);
        wake_.notify_all();
    }

    bool hook_ready(int* complete) const {
        return hook_ != nullptr && hooked_ < static_cast<int>(schedule_->tasks.size()) &&
               is_complete(hooked_, complete);
    }
    // Reports the complete tasks and lets the next one start.
    void call_hooks(int* complete) {
        while (hook_ready(complete)) {
            if (!failed_.load(std::memory_order_acquire)) {
                try {
                    (*hook_)(schedule_->tasks[static_cast<std::size_t>(hooked_)].step->instruction,
                             {memory_.sram, memory_.pool, memory_.before_sum});
                } catch (...) {
                    fail();
                }
            }
            released_ = ++hooked_;
            wake();
        }
    }
    void fail() {
        const std::lock_guard<std::mutex> lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
        failed_.store(true, std::memory_order_release);
    }

    const Schedule* schedule_ = nullptr;
    Memory memory_;
    const TraceHook* hook_ = nullptr;
    int hooked_ = 0;
    std::exception_ptr error_;
    std::mutex error_mutex_;
    std::atomic<bool> failed_{false};
    std::atomic<int> released_{0};  ///< tasks 0..released_ may start
    std::unique_ptr<std::atomic<int>[]> done_;
    std::unique_ptr<Lane[]> lanes_;
    int threads_;
    std::mutex sleep_mutex_;
    std::condition_variable wake_;
    std::atomic<int> sleepers_{0};
};

struct SimContext final : DeviceContext {
    SimContext(const void* device, std::size_t sram_bytes, std::size_t scratch_bytes, int threads,
               std::size_t most_tasks)
        : owner(device),
          sram(allocate(sram_bytes)),
          scratch_stride((scratch_bytes + 2 * kAlignment - 1) / kAlignment * kAlignment),
          scratch(allocate(scratch_stride * static_cast<std::size_t>(threads))),
          run(most_tasks, threads),
          team(threads) {}

    const void* owner;
    AlignedBytes sram;
    AlignedBytes before_sum;  ///< TraceMemory::before_sum; null until a run is traced
    std::size_t scratch_stride;
    AlignedBytes scratch;
    Run run;
    std::atomic<bool> busy{false};
    Team team;  // last: its threads end before what they use goes
};

class SimDevice final : public Device {
  public:
    SimDevice(DeviceProgram program, int threads, Level level)
        : program_(std::move(program)), threads_(threads), plan_(make_plan(program_, level, threads)) {
        for (const PartitionPlan& p : plan_.partitions) most_tasks_ = std::max(most_tasks_, p.traced.tasks.size());
    }

    std::string name() const override { return "sim"; }

    std::unique_ptr<DeviceContext> create_context() const override {
        return std::make_unique<SimContext>(this, program_.sram_bytes, plan_.scratch_bytes, threads_, most_tasks_);
    }

    void run(DeviceContext& base, std::size_t partition, std::uint8_t* pool, const TraceHook& hook) const override {
        auto* context = dynamic_cast<SimContext*>(&base);
        if (context == nullptr || context->owner != this)
            throw ArgumentError("run: expected a context of this device, found another");
        if (partition >= plan_.partitions.size())
            throw ArgumentError("run: expected a partition below " + std::to_string(plan_.partitions.size()) +
                                ", found " + std::to_string(partition));
        if (context->busy.exchange(true, std::memory_order_acquire))
            throw ArgumentError("run: expected one run at a time in a context, found a second one");
        const PartitionPlan& plan = plan_.partitions[partition];
        if (plan.clear_sram) std::memset(context->sram.get(), 0, program_.sram_bytes);
        Memory memory{context->sram.get(), program_.image, pool};
        if (hook) {
            if (!context->before_sum) context->before_sum = allocate(program_.sram_bytes);
            memory.before_sum = context->before_sum.get();
        }
        context->run.start(hook ? plan.traced : plan.fast, memory, hook ? &hook : nullptr);
        context->team.run(
            [](void* argument, int thread) {
                auto* c = static_cast<SimContext*>(argument);
                c->run.work(thread, c->scratch.get() + c->scratch_stride * static_cast<std::size_t>(thread));
            },
            context);
        context->busy.store(false, std::memory_order_release);
        context->run.rethrow();
    }

  private:
    DeviceProgram program_;
    int threads_;
    Plan plan_;
    std::size_t most_tasks_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_device(DeviceProgram program, int threads, Level level) {
    if (threads < 1 || threads > 256)
        throw ArgumentError("simulator threads: expected 1..256, found " + std::to_string(threads));
    if (level > best_level())
        throw ArgumentError("simulator level: this processor executes up to " + std::string(level_name(best_level())) +
                            ", found " + level_name(level));
    return std::make_unique<SimDevice>(std::move(program), threads, level);
}

}  // namespace npuforge::sim

namespace npuforge {

std::unique_ptr<Device> make_sim_device(DeviceProgram program, int threads, const std::string& level) {
    return sim::make_device(std::move(program), threads, sim::parse_level(level));
}

}  // namespace npuforge
