// Stand-in, see ../xir/util/data_type.hpp.
#pragma once

#include <vart/runner.hpp>

namespace vart {

class RunnerExt : public Runner {
  public:
    virtual std::vector<TensorBuffer*> get_inputs() = 0;
    virtual std::vector<TensorBuffer*> get_outputs() = 0;
};

}  // namespace vart
