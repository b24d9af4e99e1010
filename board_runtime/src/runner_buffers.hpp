// One buffer of a runner's job: what the application gave, and how it becomes what the session takes. Internal to the
// runner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npuforge/border.hpp"
#include "npuforge/runner.hpp"

namespace npuforge {

/// An application's buffer for one tensor of a partition. `memory` keeps its size between jobs.
class JobBuffer {
  public:
    enum class Of { kWhole, kNpu, kCpu };  ///< the whole network or a partition
    /// Decides how the buffer is converted. ArgumentError where its type, shape or size is not the tensor's.
    void take(const RunnerTensor& tensor, const TensorBuffer& given, bool nhwc, Of of, bool input);

    /// Whether the session reads or writes the buffer itself.
    bool direct() const { return form_ == Form::kDirect; }
    InputBuffer direct_input() const { return {data_, type_, shape_, nhwc_, tensor_->filling}; }
    OutputBuffer direct_output() const { return {data_, bytes_, type_, shape_, nhwc_, tensor_->filling}; }

    /// What the session reads in its place. ArgumentError for a value that the tensor cannot hold.
    InputBuffer converted_input();
    /// Room for what the session writes in its place.
    OutputBuffer session_output();
    /// The application's buffer, from what the session wrote for the tensor.
    void fill_from(const OutputBuffer& session);

  private:
    enum class Form {
        kDirect,
        kBorder,  ///< a CPU partition's side of the NPU's border: the session has float32 in ONNX's order
        kBf16,    ///< an NPU partition's bf16 buffer: the session has float32 in the same order
        kNumber,  ///< the session has the tensor's own type in the same order
    };
    cpu::Shape session_shape() const;
    void keep_no_truth(std::size_t count);
    MapStrides strides(bool nhwc) const { return nhwc ? MapStrides::nhwc(flat_) : MapStrides::nchw(flat_); }

    const RunnerTensor* tensor_ = nullptr;
    Form form_ = Form::kDirect;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
    cpu::Type type_ = cpu::Type::kFloat32;
    bool bf16_ = false, nhwc_ = false;
    cpu::Shape shape_;
    NpuTensor flat_;  ///< kBorder: the tensor outside the pool
    std::vector<std::uint8_t> fixed_, memory_;
    std::vector<float> real_;
};

}  // namespace npuforge
