// One subgraph of an npuforge .xmodel behind the vendor's `vart::RunnerExt`. Owns the runner's jobs; the inference is
// `npuforge::Runner`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vart/runner_ext.hpp>
#include <vector>
#include <xir/graph/subgraph.hpp>

#include "buffers.hpp"
#include "op_sequence.hpp"

namespace npuforge::plugin {

using NativeRunner = npuforge::Runner;  // inside the class below, Runner is the vendor's

/// Runs on the bit-exact simulator. Threads may share it; batches are split into the network's own batch size.
class PluginRunner : public vart::RunnerExt {
  public:
    /// `mode`: run, sim or csim. Throws std::exception with one line that names the subgraph and what it lacks.
    PluginRunner(const xir::Subgraph* subgraph, const std::string& mode);
    ~PluginRunner() override;

    std::pair<std::uint32_t, int> execute_async(const std::vector<vart::TensorBuffer*>& input,
                                                const std::vector<vart::TensorBuffer*>& output) override;
    /// `jobid` < 0: the oldest job that nobody waits for. `timeout` in ms: < 0 for ever, 0 only looks. 0 is success,
    /// else npuforge::Runner::Status.
    int wait(int jobid, int timeout) override;
    std::vector<const xir::Tensor*> get_input_tensors() override { return inputs_; }
    std::vector<const xir::Tensor*> get_output_tensors() override { return outputs_; }
    std::vector<vart::TensorBuffer*> get_inputs() override;
    std::vector<vart::TensorBuffer*> get_outputs() override;

  private:
    struct Job;

    std::vector<vart::TensorBuffer*> owned(const std::vector<const xir::Tensor*>& tensors,
                                           std::vector<std::unique_ptr<HostBuffer>>& buffers);
    void add_items(Job& job, const std::vector<vart::TensorBuffer*>& buffers,
                   const std::vector<const xir::Tensor*>& tensors, bool input) const;
    void run_ops(std::vector<BatchItem>& items) const;
    int finish(Job& job, int timeout);

    std::string name_;
    std::vector<const xir::Tensor*> inputs_, outputs_;
    std::unique_ptr<NativeRunner> native_;  ///< a partition of the .bin
    std::unique_ptr<OpSequence> ops_;       ///< a CPU subgraph that is none; runs inside execute_async

    std::mutex mutex_;
    std::uint32_t next_ = 1;
    std::map<std::uint32_t, std::unique_ptr<Job>> jobs_;  ///< ascending ids: the first is the oldest
    std::vector<std::unique_ptr<HostBuffer>> own_inputs_, own_outputs_;
};

}  // namespace npuforge::plugin
