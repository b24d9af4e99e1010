// Prometheus text of the runtime's counters.
#include "npuforge/metrics.hpp"

#include <cstdio>

#include "npuforge/memory.hpp"

namespace npuforge {
namespace {

std::string number(double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.9g", value);
    return buffer;
}

void header(std::string& out, const char* name, const char* type, const char* help) {
    out += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void line(std::string& out, const std::string& name, const std::string& labels, const std::string& value) {
    out += name + (labels.empty() ? "" : "{" + labels + "}") + " " + value + "\n";
}

}  // namespace

void Metrics::record(std::chrono::nanoseconds latency, bool failed) {
    requests_.fetch_add(1, std::memory_order_relaxed);
    if (failed) {
        errors_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    const double seconds = static_cast<double>(latency.count()) * 1e-9;
    std::size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(static_cast<std::uint64_t>(latency.count()), std::memory_order_relaxed);
}

std::string Metrics::prometheus(const std::string& labels) const {
    std::string out;
    header(out, "npuforge_inference_seconds", "histogram", "Latency of successful inferences.");
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i <= kBounds.size(); ++i) {
        cumulative += buckets_[i].load(std::memory_order_relaxed);
        const std::string bound = i < kBounds.size() ? number(kBounds[i]) : "+Inf";
        line(out, "npuforge_inference_seconds_bucket", (labels.empty() ? "" : labels + ",") + "le=\"" + bound + "\"",
             std::to_string(cumulative));
    }
    line(out, "npuforge_inference_seconds_sum", labels,
         number(static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) * 1e-9));
    line(out, "npuforge_inference_seconds_count", labels, std::to_string(cumulative));
    header(out, "npuforge_requests_total", "counter", "Inferences started and finished, failed ones included.");
    line(out, "npuforge_requests_total", labels, std::to_string(requests()));
    header(out, "npuforge_errors_total", "counter", "Inferences that failed.");
    line(out, "npuforge_errors_total", labels, std::to_string(errors()));
    header(out, "npuforge_in_flight", "gauge", "Inferences running now.");
    line(out, "npuforge_in_flight", labels, std::to_string(in_flight_.load(std::memory_order_relaxed)));
    header(out, "npuforge_queue_depth", "gauge", "Jobs waiting for a worker.");
    line(out, "npuforge_queue_depth", labels, std::to_string(queue_depth_.load(std::memory_order_relaxed)));
    const MemoryPool::Statistics pool = MemoryPool::shared().statistics();
    header(out, "npuforge_pool_bytes", "gauge", "Memory pool of the process.");
    line(out, "npuforge_pool_bytes", "state=\"in_use\"", std::to_string(pool.bytes_in_use));
    line(out, "npuforge_pool_bytes", "state=\"cached\"", std::to_string(pool.bytes_cached));
    line(out, "npuforge_pool_bytes", "state=\"peak\"", std::to_string(pool.peak_in_use));
    header(out, "npuforge_pool_buffers_total", "counter", "Buffers taken from the system and from the cache.");
    line(out, "npuforge_pool_buffers_total", "source=\"system\"", std::to_string(pool.allocations));
    line(out, "npuforge_pool_buffers_total", "source=\"cache\"", std::to_string(pool.recycled));
    return out;
}

}  // namespace npuforge
