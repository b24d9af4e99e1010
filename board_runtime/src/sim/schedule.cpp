// Owns the order and division of work: what each step waits for, which loads are left out, which thread gets which
// part.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "plan.hpp"

namespace npuforge::sim {
namespace {

class Scheduler {
  public:
    explicit Scheduler(int threads) : threads_(threads) {}

    void run(PartitionPlan& plan) const {
        plan.fast.queues.resize(static_cast<std::size_t>(threads_));
        plan.traced.queues.resize(static_cast<std::size_t>(threads_));
        std::map<std::string, Layer> layers;
        for (const auto& step : plan.steps) layers[step->layer].units += step->units;
        // A LOAD of image bytes is needed only if some step reads them from on-chip memory.
        for (std::size_t i = 0; i < plan.steps.size(); ++i) {
            const Step& step = *plan.steps[i];
            bool needed = !step.loads_image;
            for (std::size_t j = i + 1; j < plan.steps.size() && !needed; ++j) {
                for (const View& read : plan.steps[j]->reads) needed = needed || may_overlap(step.writes[0], read);
            }
            Layer own{step.units, 0};
            Layer& layer = step.layer.empty() ? own : layers[step.layer];
            add(plan.traced, step, static_cast<int>(plan.traced.tasks.size()) - 1, layer);
            if (needed) {
                int wait_for = static_cast<int>(plan.fast.tasks.size()) - 1;
                while (wait_for >= 0 && !conflicts(*plan.fast.tasks[static_cast<std::size_t>(wait_for)].step, step))
                    --wait_for;
                add(plan.fast, step, wait_for, layer);
            }
            layer.first += step.units;
        }
    }

  private:
    static bool conflicts(const Step& earlier, const Step& later) {
        const auto any = [](const std::vector<View>& a, const std::vector<View>& b) {
            for (const View& x : a)
                for (const View& y : b)
                    if (may_overlap(x, y)) return true;
            return false;
        };
        return any(earlier.writes, later.reads) || any(earlier.reads, later.writes) ||
               any(earlier.writes, later.writes);
    }

    // Units of all bands of a layer, and of those before the one at hand.
    struct Layer {
        long units = 0, first = 0;
    };

    // Thread t gets the t-th part of every layer, across its bands: what it reads it has mostly written itself. Cheap
    // layers stay whole, since handing a piece to another thread costs about a microsecond; large parts are cut, so
    // that an idle thread can take some.
    void add(Schedule& schedule, const Step& step, int wait_for, const Layer& layer) const {
        constexpr double kWholeCycles = 4000, kChunkCycles = 40000;
        Task task;
        task.step = &step;
        task.wait_for = wait_for;
        const int number = static_cast<int>(schedule.tasks.size());
        const auto push = [&](int thread, int begin, int end) {
            if (begin >= end) return;
            const int most = (end - begin + step.granularity - 1) / step.granularity;
            const double cost = step.cost * (end - begin) / step.units;
            const int pieces = threads_ == 1 ? 1 : std::max(1, std::min(most, static_cast<int>(cost / kChunkCycles)));
            int from = begin;
            for (int p = 1; p <= pieces; ++p) {
                const int to =
                    p == pieces ? end : begin + round_down(step, static_cast<long>(end - begin) * p / pieces);
                if (to <= from) continue;
                schedule.queues[static_cast<std::size_t>(thread)].push_back({number, from, to});
                ++task.chunks;
                from = to;
            }
        };
        const double layer_cost = step.cost * static_cast<double>(layer.units) / step.units;
        if (threads_ == 1 || layer_cost <= kWholeCycles) {
            push(0, 0, step.units);
        } else {
            int from = 0;
            for (int thread = 0; thread < threads_; ++thread) {
                const long border = layer.units * (thread + 1) / threads_ - layer.first;
                const int to = thread + 1 == threads_
                                   ? step.units
                                   : round_down(step, std::max<long>(from, std::min<long>(step.units, border)));
                push(thread, from, std::max(from, to));
                from = std::max(from, to);
            }
        }
        schedule.tasks.push_back(task);
    }
    static int round_down(const Step& step, long units) {
        return units >= step.units ? step.units : static_cast<int>(units / step.granularity * step.granularity);
    }

    int threads_;
};

}  // namespace

void make_schedules(PartitionPlan& plan, int threads) { Scheduler(threads).run(plan); }

}  // namespace npuforge::sim
