// Owns the threads of one context: they spin for a moment, then sleep, and join whatever run is open.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace npuforge::sim {

/// Tells the processor that this is a waiting loop.
inline void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

/// Spins until `ready()` or for about `microseconds`; whether it was ready. A pause takes 10 to 50 ns, by processor.
template <class Ready>
bool spin_until(Ready ready, int microseconds) {
    for (int i = 0; i < 200; ++i) {
        if (ready()) return true;
        pause_briefly();
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    do {
        for (int i = 0; i < 50; ++i) {
            if (ready()) return true;
            pause_briefly();
        }
    } while (std::chrono::steady_clock::now() < end);
    return ready();
}

/// Spins until `ready()` or for `pauses` pauses; whether it was ready.
template <class Ready>
bool pause_until(Ready ready, int pauses) {
    for (int i = 0; i < pauses; ++i) {
        if (ready()) return true;
        pause_briefly();
    }
    return false;
}

/// `threads - 1` helpers plus the caller. A run never waits for a helper that has not started: whoever is there does
/// the work.
class Team {
  public:
    using Work = void (*)(void* argument, int thread);

    explicit Team(int threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int threads() const { return static_cast<int>(helpers_.size()) + 1; }
    /// Calls work(argument, 0) here and work(argument, 1..threads-1) on helpers that are awake in time; returns when
    /// all have left.
    void run(Work work, void* argument);

  private:
    static constexpr std::uint32_t kOpen = 1U << 31;

    void help(int thread);
    bool join(std::uint32_t* seen);

    Work work_ = nullptr;
    void* argument_ = nullptr;
    std::atomic<std::uint32_t> state_{0};  ///< kOpen while a run accepts helpers, plus the number of helpers inside
    std::atomic<std::uint32_t> generation_{0};
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::atomic<bool> closing_{false};  ///< the caller sleeps until the helpers have left
    std::mutex mutex_;
    std::condition_variable wake_, left_;
    std::vector<std::thread> helpers_;
};

}  // namespace npuforge::sim
