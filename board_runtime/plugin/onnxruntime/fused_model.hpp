// The node that a whole model becomes: takes ONNX Runtime's tensors, runs a session, gives tensors back.
#pragma once

#include <onnxruntime_c_api.h>

#include <memory>
#include <string>
#include <vector>

#include "npuforge/session.hpp"

namespace npuforge::ort {

/// Immutable after construction; any number of threads compute with it.
class FusedModel {
  public:
    /// `inputs`, `outputs`: of the node, by name. ArgumentError where the program needs an input that the node lacks.
    FusedModel(const OrtApi& api, std::shared_ptr<Session> session, const std::vector<std::string>& inputs,
               const std::vector<std::string>& outputs);

    const OrtApi& api() const { return api_; }
    void compute(OrtKernelContext* context) const;

  private:
    struct Output {
        std::size_t position = 0;  ///< among the node's outputs
        bool wanted = false;       ///< the node gives it
        bool dynamic = false;      ///< its shape depends on the data
        cpu::Shape shape;          ///< as the application sees it; dynamic: the largest
        std::size_t bytes = 0;
    };
    void* place(OrtKernelContext* context, const Output& output, const cpu::Shape& shape) const;

    const OrtApi& api_;
    std::shared_ptr<Session> session_;
    std::vector<std::size_t> inputs_;  ///< of the program: positions among the node's
    std::vector<Output> outputs_;      ///< of the program
};

}  // namespace npuforge::ort
