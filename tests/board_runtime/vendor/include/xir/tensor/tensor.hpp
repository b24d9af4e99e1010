// Stand-in, see ../util/data_type.hpp. A concrete tensor.
#pragma once

#include <string>
#include <utility>
#include <vector>
#include <xir/attrs/attrs.hpp>
#include <xir/util/data_type.hpp>

namespace xir {

class Op;
class Tensor {
  public:
    Tensor(std::string name, std::vector<std::int32_t> shape, DataType type)
        : name_(std::move(name)), shape_(std::move(shape)), type_(type) {}
    const std::string get_name() const { return name_; }
    const std::vector<std::int32_t> get_shape() const { return shape_; }
    const DataType& get_data_type() const { return type_; }
    bool has_attr(const std::string& key) const { return attrs.has_attr(key); }
    const any get_attr(const std::string& key) const { return attrs.get_attr(key); }

    const Op* get_producer() const { return producer; }

    Attrs attrs;
    const Op* producer = nullptr;

  private:
    std::string name_;
    std::vector<std::int32_t> shape_;
    DataType type_;
};

}  // namespace xir
