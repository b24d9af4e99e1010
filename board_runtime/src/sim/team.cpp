// Owns the threads of one context (see team.hpp).
#include "team.hpp"

#include <string>
#include <system_error>

#include "npuforge/device.hpp"

namespace npuforge::sim {
namespace {

constexpr int kSpinMicroseconds = 100;  // longer than the gap between two runs in a row

}  // namespace

Team::Team(int threads) {
    helpers_.reserve(static_cast<std::size_t>(threads - 1));
    try {
        for (int t = 1; t < threads; ++t) helpers_.emplace_back([this, t] { help(t); });
    } catch (const std::system_error& e) {
        stop_ = true;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            wake_.notify_all();
        }
        for (std::thread& helper : helpers_) helper.join();
        throw Error("simulator: cannot start " + std::to_string(threads) + " threads: " + e.what());
    }
}

Team::~Team() {
    stop_ = true;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        wake_.notify_all();
    }
    for (std::thread& helper : helpers_) helper.join();
}

void Team::run(Work work, void* argument) {
    if (!helpers_.empty()) {
        work_ = work;
        argument_ = argument;
        ++generation_;
        state_ = kOpen;
        if (sleepers_ > 0) {
            const std::lock_guard<std::mutex> lock(mutex_);
            wake_.notify_all();
        }
    }
    work(argument, 0);
    if (helpers_.empty()) return;
    state_ &= ~kOpen;
    if (spin_until([this] { return state_ == 0; }, kSpinMicroseconds)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    closing_ = true;
    left_.wait(lock, [this] { return state_ == 0; });
    closing_ = false;
}

// Enters the open run unless this helper has already been in it.
bool Team::join(std::uint32_t* seen) {
    std::uint32_t state = state_;
    while ((state & kOpen) != 0) {
        const std::uint32_t generation = generation_;
        if (generation == *seen) return false;
        if (state_.compare_exchange_weak(state, state + 1)) {
            *seen = generation_;
            return true;
        }
    }
    return false;
}

void Team::help(int thread) {
    std::uint32_t seen = 0;
    while (!stop_) {
        bool joined = false;
        spin_until([&] { return stop_ || (joined = join(&seen)); }, kSpinMicroseconds);
        if (!joined) {
            std::unique_lock<std::mutex> lock(mutex_);
            ++sleepers_;
            wake_.wait(lock, [&] { return stop_ || (joined = join(&seen)); });
            --sleepers_;
        }
        if (!joined) continue;
        work_(argument_, thread);
        if (--state_ == 0 && closing_) {
            const std::lock_guard<std::mutex> lock(mutex_);
            left_.notify_one();
        }
    }
}

}  // namespace npuforge::sim
