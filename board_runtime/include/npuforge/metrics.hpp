// Counters of the runtime in Prometheus text format: latency histogram, queue depth, pool use, errors. Lock-free on the
// hot path.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace npuforge {

class Metrics {
  public:
    static constexpr std::array<double, 14> kBounds = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                                       0.1,    0.2,   0.5,   1.0,   2.0,  5.0,  10.0};

    void record(std::chrono::nanoseconds latency, bool failed);
    void enter() { in_flight_.fetch_add(1, std::memory_order_relaxed); }
    void leave() { in_flight_.fetch_sub(1, std::memory_order_relaxed); }
    void set_queue_depth(std::int64_t depth) { queue_depth_.store(depth, std::memory_order_relaxed); }
    std::uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
    std::uint64_t errors() const { return errors_.load(std::memory_order_relaxed); }

    /// `labels`: e.g. model="yolox_nano",device="sim".
    std::string prometheus(const std::string& labels) const;

  private:
    std::array<std::atomic<std::uint64_t>, kBounds.size() + 1> buckets_{};
    std::atomic<std::uint64_t> requests_{0}, errors_{0}, nanoseconds_{0};
    std::atomic<std::int64_t> in_flight_{0}, queue_depth_{0};
};

}  // namespace npuforge
