// The planner of the CPU arena: random buffers never collide, and the peak is at least the live-range bound.
#include <algorithm>
#include <cstdio>
#include <random>

#include "npuforge/cpu_plan.hpp"

using npuforge::CpuPlan;

int main() {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
        std::vector<CpuPlan::Placement> buffers;
        const int count = 1 + static_cast<int>(random() % 40), steps = 1 + static_cast<int>(random() % 30);
        for (int i = 0; i < count; ++i) {
            const int a = static_cast<int>(random() % static_cast<unsigned>(steps)),
                      b = static_cast<int>(random() % static_cast<unsigned>(steps));
            buffers.push_back({std::to_string(i), 0, 1 + random() % 1000, std::min(a, b), std::max(a, b)});
        }
        const std::size_t peak = npuforge::plan_offsets(buffers, 64);
        std::size_t bound = 0;
        for (int step = 0; step < steps; ++step) {
            std::size_t live = 0;
            for (const auto& b : buffers)
                if (b.first <= step && step <= b.last) live += b.size;
            bound = std::max(bound, live);
        }
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            const auto& a = buffers[i];
            if (a.offset % 64 != 0 || a.offset + a.size > peak) {
                std::fprintf(stderr, "buffer %s lies at %zu + %zu of %zu\n", a.name.c_str(), a.offset, a.size, peak);
                return 1;
            }
            for (std::size_t j = 0; j < i; ++j) {
                const auto& b = buffers[j];
                const bool together = a.first <= b.last && b.first <= a.last;
                if (together && a.offset < b.offset + b.size && b.offset < a.offset + a.size) {
                    std::fprintf(stderr, "buffers %s and %s collide\n", a.name.c_str(), b.name.c_str());
                    return 1;
                }
            }
        }
        if (peak < bound) {
            std::fprintf(stderr, "peak %zu is below the bound %zu\n", peak, bound);
            return 1;
        }
    }
    return 0;
}
