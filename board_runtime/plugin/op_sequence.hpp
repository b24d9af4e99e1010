// A CPU subgraph that no .bin has as a partition, op by op: `subgraph_outputs` (network outputs of the NPU as float),
// any of a network without an NPU partition. Owns the memory between the ops.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>
#include <xir/graph/subgraph.hpp>

#include "xir_op.hpp"

namespace npuforge::plugin {

class OpSequence {
  public:
    /// Throws std::exception that names the operator that is not known.
    explicit OpSequence(const xir::Subgraph& subgraph);

    /// `data`: memory of the subgraph's input and output tensors by name, contiguous, in the tensors' own types.
    void run(const std::map<std::string, void*>& data) const;

  private:
    struct Step {
        std::unique_ptr<XirOp> op;
        std::vector<std::string> inputs;
        std::string output;
        std::size_t bytes;
        bool constant;  ///< a `const` op: `content` is its data
        std::vector<char> content;
    };
    std::vector<Step> steps_;
};

}  // namespace npuforge::plugin
