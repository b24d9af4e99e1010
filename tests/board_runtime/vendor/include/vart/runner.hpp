// Stand-in, see ../xir/util/data_type.hpp.
#pragma once

#include <vart/tensor_buffer.hpp>

namespace vart {

class Runner {
  public:
    virtual ~Runner() = default;
    virtual std::pair<std::uint32_t, int> execute_async(const std::vector<TensorBuffer*>& input,
                                                        const std::vector<TensorBuffer*>& output) = 0;
    virtual int wait(int jobid, int timeout) = 0;
    virtual std::vector<const xir::Tensor*> get_input_tensors() = 0;
    virtual std::vector<const xir::Tensor*> get_output_tensors() = 0;
};

}  // namespace vart
