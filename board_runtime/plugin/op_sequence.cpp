// See op_sequence.hpp.
#include "op_sequence.hpp"

#include <any>
#include <stdexcept>

#include "buffers.hpp"

namespace npuforge::plugin {

OpSequence::OpSequence(const xir::Subgraph& subgraph) {
    for (const xir::Op* op : subgraph.topological_sort()) {
        Step step;
        const xir::Tensor& tensor = *op->get_output_tensor();
        step.output = tensor.get_name();
        step.bytes = HostBuffer(&tensor).data().second;
        step.constant = op->get_type() == "const";
        if (step.constant) {
            const xir::any data = op->get_attr("data");
            if (const auto* bytes = std::any_cast<std::vector<char>>(&data)) step.content = *bytes;
            if (step.content.size() < step.bytes) {
                throw std::invalid_argument("op " + op->get_name() + ": expected " + std::to_string(step.bytes) +
                                            " bytes of data, found " + std::to_string(step.content.size()));
            }
        } else {
            step.op = std::make_unique<XirOp>(*op);
            for (const xir::Op* producer : step.op->producers()) {
                step.inputs.push_back(producer->get_output_tensor()->get_name());
            }
        }
        steps_.push_back(std::move(step));
    }
}

void OpSequence::run(const std::map<std::string, void*>& data) const {
    std::map<std::string, const void*> known(data.begin(), data.end());
    std::vector<std::unique_ptr<char[]>> made;
    for (const Step& step : steps_) {
        if (step.constant) {
            known[step.output] = step.content.data();
            continue;
        }
        std::vector<const void*> inputs;
        for (const std::string& name : step.inputs) {
            const auto found = known.find(name);
            if (found == known.end()) throw std::invalid_argument("tensor " + name + ": no buffer was given");
            inputs.push_back(found->second);
        }
        const auto given = data.find(step.output);
        void* target = given == data.end() ? nullptr : given->second;
        if (!target) {
            made.push_back(std::make_unique<char[]>(step.bytes));
            target = made.back().get();
        }
        step.op->run(inputs, target);
        known[step.output] = target;
    }
}

}  // namespace npuforge::plugin
