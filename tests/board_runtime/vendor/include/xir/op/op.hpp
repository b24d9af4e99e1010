// Stand-in, see ../util/data_type.hpp. A concrete operator whose inputs and attributes the test sets.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include <xir/attrs/attrs.hpp>
#include <xir/tensor/tensor.hpp>

namespace xir {

class Op {
  public:
    Op(std::string type, Tensor tensor) : type_(std::move(type)), tensor_(std::move(tensor)) {}
    const std::string get_name() const { return "op_" + tensor_.get_name(); }
    const std::string get_type() const { return type_; }
    const std::vector<const Op*> get_input_ops(std::string argument) const {
        const auto found = inputs.find(argument);
        return found == inputs.end() ? std::vector<const Op*>() : found->second;
    }
    int get_fanout_num() const { return readers; }
    const Tensor* get_output_tensor() const { return &tensor_; }
    bool has_attr(const std::string& key) const { return attrs.has_attr(key); }
    const any get_attr(const std::string& key) const { return attrs.get_attr(key); }
    std::unique_ptr<Attrs> get_attrs() const { return std::make_unique<Attrs>(attrs); }

    std::map<std::string, std::vector<const Op*>> inputs;
    Attrs attrs;
    int readers = 0;

  private:
    std::string type_;
    Tensor tensor_;
};

}  // namespace xir
