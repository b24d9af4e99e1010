// Owns the translation of a program at load: checks, constant tracking, preparation of steps, dependencies, division of
// work.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "npuforge/device.hpp"
#include "npuforge/sim.hpp"
#include "step.hpp"

namespace npuforge::sim {

/// One step in execution order.
struct Task {
    const Step* step = nullptr;
    int chunks = 0;
    int wait_for = -1;  ///< tasks 0..wait_for must be complete before any chunk starts; -1: none
};

/// One chunk of a task: units [begin, end).
struct Item {
    int task = 0, begin = 0, end = 0;
};

/// `queues[t]`: what thread t does unless another is idle, in program order. A thread gets the same part of every map,
/// so that its data stay in its own cache.
struct Schedule {
    std::vector<Task> tasks;
    std::vector<std::vector<Item>> queues;
};

/// One NPU partition, ready to run.
struct PartitionPlan {
    std::vector<std::unique_ptr<Step>> steps;  ///< in program order
    Schedule fast;                             ///< without loads whose bytes are prepared
    Schedule traced;                           ///< all steps, strictly one after another
    bool clear_sram = false;                   ///< it reads on-chip bytes that it never wrote
};

struct Plan {
    std::vector<PartitionPlan> partitions;
    std::vector<std::shared_ptr<const void>> owned;  ///< assembled parameter bytes
    std::size_t scratch_bytes = 0;                   ///< per thread, largest of all steps
};

/// Fills `fast` and `traced` from `steps` (schedule.cpp).
void make_schedules(PartitionPlan& plan, int threads);

/// InstructionError names index and field of the first illegal instruction.
Plan make_plan(const DeviceProgram& program, Level level, int threads);

}  // namespace npuforge::sim
