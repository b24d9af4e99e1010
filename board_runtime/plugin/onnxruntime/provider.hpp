// The execution provider of one ONNX Runtime session: reads its options, claims the model that a build was compiled
// from, runs it. Needs ONNX Runtime's API of version 23 or newer.
#pragma once

#include <onnxruntime_c_api.h>

#include <memory>
#include <string>

#include "build_folder.hpp"
#include "npuforge/session.hpp"

namespace npuforge::ort {

constexpr std::uint32_t kProviderVersion = 23;  ///< the oldest ONNX Runtime API that has all that is used here
constexpr const char* kProviderName = "NpuforgeExecutionProvider";

/// Provider options, all text to the application.
struct ProviderOptions {
    std::string build;         ///< folder that `npuforge compile` wrote; empty: nothing is claimed
    std::string model_sha256;  ///< of a model that is given as bytes
    SessionOptions session;    ///< `device`, `threads`, `level`

    /// Those of our provider in a session's options; ArgumentError for one that is not known or has no such value.
    static ProviderOptions read(const OrtApi& api, const OrtSessionOptions* options);
};

class Provider : public OrtEp {
  public:
    /// Opens the build that the session's options name. What is wrong with them ends the session when its model is
    /// compiled: of an error before that some versions of ONNX Runtime only print a line and go on without us.
    Provider(const OrtApi& api, const OrtLogger& logger, const OrtSessionOptions* options);

  private:
    static Provider& own(OrtEp* ep) { return *static_cast<Provider*>(ep); }
    void claim(const OrtGraph* graph, OrtEpGraphSupportInfo* support);
    void check_model(const OrtGraph* graph) const;
    void compile(const OrtNode* node, OrtNodeComputeInfo** info) const;
    void log(OrtLoggingLevel level, const std::string& message) const;

    const OrtApi& api_;
    const OrtLogger& logger_;
    ProviderOptions options_;
    std::unique_ptr<BuildFolder> build_;
    std::shared_ptr<Session> session_;
    std::string refusal_;  ///< why the session cannot run; `compile` gives it
};

}  // namespace npuforge::ort
