// The CPU partitions of a program, prepared: kernels, constants, static shapes, and one arena planned by live range.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "npuforge/cpu.hpp"
#include "npuforge/program.hpp"

namespace npuforge {

/// Immutable after construction; shared by all contexts of a session.
class CpuPlan {
  public:
    /// Per-context views: one tensor per name, with data pointers into the context's arena, plus argument lists of
    /// every node.
    struct Bindings {
        std::vector<cpu::Tensor> tensors;
        std::vector<const cpu::Tensor*> inputs;
        std::vector<cpu::Tensor*> outputs;
    };

    explicit CpuPlan(std::shared_ptr<const Program> program);

    /// Bytes of the arena that `bind` needs, 64-byte aligned.
    std::size_t arena_bytes() const { return arena_bytes_; }
    Bindings bind(std::uint8_t* arena) const;
    /// Index of a tensor in `Bindings::tensors`; -1 if the CPU side never sees it.
    int find(const std::string& name) const;
    /// True if the tensor has its own place in the arena: those that a CPU node reads or the network gives, except
    /// views and constants.
    bool in_arena(int tensor) const { return slots_[static_cast<std::size_t>(tensor)].stored; }
    std::size_t offset(int tensor) const { return slots_[static_cast<std::size_t>(tensor)].offset; }
    /// Shape of the tensor before a run: of one whose rows the data decide the largest.
    const cpu::Shape& largest(int tensor) const { return slots_[static_cast<std::size_t>(tensor)].prototype.shape; }
    /// Runs CPU partition `partition` (index into Program::partitions).
    void run(Bindings& bindings, std::size_t partition, std::uint8_t* arena) const;

    /// One placed buffer, for the independent checker: live in steps [first, last].
    struct Placement {
        std::string name;
        std::size_t offset, size;
        int first, last;
    };
    std::vector<Placement> placements() const;

  private:
    struct Node {
        const CpuNode* meta;
        cpu::Kernel kernel;
        cpu::FusedActivation activation;
        std::size_t first_input, input_count, first_output, output_count;  ///< in Bindings::inputs and outputs
        std::size_t scratch_offset = 0, scratch_bytes = 0;
        bool folded = false;   ///< computed at load
        bool dynamic = false;  ///< shapes are computed again at run time
    };
    struct Slot {
        std::string name;
        cpu::Tensor prototype;
        int root = -1;  ///< the tensor whose bytes this one shows (itself unless it is a view)
        int first = 1 << 30, last = -1;
        bool stored = false;
        bool dynamic = false;
        std::size_t offset = 0;
    };

    int add(const std::string& name, cpu::Type type, const cpu::Shape& shape);
    void touch(int tensor, int step);
    void load_constants();
    void prepare_node(std::size_t partition, const CpuNode& meta, int step);
    void fold(Node& node, const std::vector<const cpu::Tensor*>& inputs, const std::vector<cpu::Tensor*>& outputs);
    void place();

    std::shared_ptr<const Program> program_;
    std::vector<Slot> slots_;
    std::map<std::string, int> index_;
    std::vector<std::vector<Node>> nodes_;  ///< by partition
    std::vector<int> input_list_, output_list_;
    std::vector<std::unique_ptr<std::uint8_t[]>> constants_;
    std::vector<Placement> scratch_;
    std::size_t arena_bytes_ = 0;
};

/// Offsets for buffers with live ranges: largest first, lowest offset that collides with no buffer live at the same
/// time. Returns the peak.
std::size_t plan_offsets(std::vector<CpuPlan::Placement>& buffers, std::size_t alignment);

}  // namespace npuforge
