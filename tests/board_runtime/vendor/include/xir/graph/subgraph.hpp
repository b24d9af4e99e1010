// Stand-in, see ../util/data_type.hpp. A concrete subgraph whose tensors and attributes the test sets.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>
#include <xir/op/op.hpp>

namespace xir {

class Subgraph {
  public:
    explicit Subgraph(std::string name) : name_(std::move(name)) {}
    const std::string get_name() const { return name_; }
    bool has_attr(const std::string& key) const { return attrs.count(key) != 0; }
    const any get_attr(const std::string& key) const { return attrs.at(key); }
    const Subgraph* get_root() const { return root ? root : this; }
    const std::set<const Subgraph*> get_children() const { return children; }
    std::vector<const Tensor*> get_sorted_input_tensors() const { return sorted(inputs); }
    std::vector<const Tensor*> get_sorted_output_tensors() const { return sorted(outputs); }
    const std::vector<const Op*> topological_sort() const { return ops; }

    std::map<std::string, any> attrs;
    std::vector<const Op*> ops;
    const Subgraph* root = nullptr;
    std::set<const Subgraph*> children;
    std::vector<const Tensor*> inputs, outputs;

  private:
    static std::vector<const Tensor*> sorted(std::vector<const Tensor*> tensors) {
        std::sort(tensors.begin(), tensors.end(),
                  [](const Tensor* a, const Tensor* b) { return a->get_name() < b->get_name(); });
        return tensors;
    }
    std::string name_;
};

}  // namespace xir
