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

// One run of one schedule. Threads take tickets in order; a ticket is a chunk of a task, and a task starts when the
// tasks it depends on are complete. Since tickets are taken in program order, the oldest unfinished chunk can always
// proceed: no deadlock.
class Run {
  public:
    explicit Run(std::size_t most_tasks) : done_(new std::atomic<int>[most_tasks]) {}

    void start(const Schedule& schedule, const Memory& memory, const TraceHook* hook) {
        schedule_ = &schedule;
        memory_ = memory;
        hook_ = hook;
        hooked_ = 0;
        error_ = nullptr;
        failed_ = false;
        next_ticket_ = 0;
        released_ = hook == nullptr ? static_cast<int>(schedule.tasks.size()) : 0;
        for (std::size_t t = 0; t < schedule.tasks.size(); ++t) done_[t].store(0, std::memory_order_relaxed);
    }

    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

    // Thread 0 also calls the hook, in program order; other threads stay behind it.
    void work(int thread, std::uint8_t* scratch) {
        const auto& tasks = schedule_->tasks;
        std::size_t task = 0;
        int complete = 0;  // tasks [0, complete) are known to be complete
        for (;;) {
            const int ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed);
            if (ticket >= schedule_->tickets) break;
            while (ticket >= tasks[task].first_ticket + tasks[task].chunks) ++task;
            if (thread == 0 && hook_ != nullptr) call_hooks(static_cast<int>(task), &complete);
            wait_complete(tasks[task].wait_for, &complete);
            wait_released(static_cast<int>(task));
            if (!failed_.load(std::memory_order_relaxed)) {
                const int chunk = ticket - tasks[task].first_ticket;
                try {
                    tasks[task].step->run(memory_, scratch, tasks[task].begin(chunk), tasks[task].end(chunk));
                } catch (...) {
                    fail();
                }
            }
            ++done_[task];
            wake();
        }
        if (thread == 0 && hook_ != nullptr) call_hooks(static_cast<int>(tasks.size()), &complete);
    }

  private:
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
    void wait_complete(int last, int* complete) {
        for (; *complete <= last; ++*complete) {
            const int wanted = schedule_->tasks[static_cast<std::size_t>(*complete)].chunks;
            wait([&] { return done_[*complete] == wanted; });
        }
    }
    void wait_released(int task) {
        wait([&] { return released_ >= task; });
    }
    // Completes and reports the tasks before `end`.
    void call_hooks(int end, int* complete) {
        for (; hooked_ < end; ++hooked_) {
            wait_complete(hooked_, complete);
            if (!failed_.load(std::memory_order_acquire)) {
                try {
                    (*hook_)(schedule_->tasks[static_cast<std::size_t>(hooked_)].step->instruction, memory_.sram,
                             memory_.pool);
                } catch (...) {
                    fail();
                }
            }
            released_ = hooked_ + 1;
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
    static constexpr int kSpinMicroseconds = 60;  // several times a chunk
    std::mutex sleep_mutex_;
    std::condition_variable wake_;
    std::atomic<int> sleepers_{0};
    alignas(64) std::atomic<int> next_ticket_{0};
};

struct SimContext final : DeviceContext {
    SimContext(const void* device, std::size_t sram_bytes, std::size_t scratch_bytes, int threads,
               std::size_t most_tasks)
        : owner(device),
          sram(allocate(sram_bytes)),
          scratch_stride((scratch_bytes + 2 * kAlignment - 1) / kAlignment * kAlignment),
          scratch(allocate(scratch_stride * static_cast<std::size_t>(threads))),
          run(most_tasks),
          team(threads) {}

    const void* owner;
    AlignedBytes sram;
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
        context->run.start(hook ? plan.traced : plan.fast, {context->sram.get(), program_.image, pool},
                           hook ? &hook : nullptr);
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

std::unique_ptr<Device> make_sim_device(DeviceProgram program, int threads) {
    return sim::make_device(std::move(program), threads, sim::best_level());
}

}  // namespace npuforge
