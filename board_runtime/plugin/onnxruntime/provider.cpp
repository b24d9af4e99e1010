// See provider.hpp.
#include "provider.hpp"

#include <charconv>
#include <map>
#include <vector>

#include "fused_model.hpp"
#include "graph_ends.hpp"
#include "hw_kernels/bindings/onnxruntime_values.hpp"

namespace npuforge::ort {
namespace {

constexpr const char* kOptionPrefix = "ep.npuforgeexecutionprovider.";  // ONNX Runtime's: "ep.", the name in lower case

int threads_of(const std::string& text) {
    int threads = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
    if (error != std::errc() || end != text.data() + text.size() || threads < 1)
        throw ArgumentError("provider option threads: expected a whole number from 1, found '" + text + "'");
    return threads;
}

/// What ONNX Runtime calls for the fused node.
class ComputeInfo : public OrtNodeComputeInfo {
  public:
    explicit ComputeInfo(FusedModel model) : OrtNodeComputeInfo{}, model_(std::move(model)) {
        ort_version_supported = kProviderVersion;
        CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) -> OrtStatus* {
            *state = &static_cast<ComputeInfo*>(self)->model_;
            return nullptr;
        };
        Compute = [](OrtNodeComputeInfo*, void* state, OrtKernelContext* context) -> OrtStatus* {
            const auto& model = *static_cast<const FusedModel*>(state);
            return guarded(model.api(), [&] { model.compute(context); });
        };
        ReleaseState = [](OrtNodeComputeInfo*, void*) {};
    }

  private:
    FusedModel model_;
};

// Tools write digests in either case, manifest.json in lower case.
std::string lower_case(std::string text) {
    for (char& c : text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
}

}  // namespace

ProviderOptions ProviderOptions::read(const OrtApi& api, const OrtSessionOptions* options) {
    OrtKeyValuePairs* found = nullptr;
    check(api, api.GetSessionOptionsConfigEntries(options, &found));
    const std::unique_ptr<OrtKeyValuePairs, decltype(api.ReleaseKeyValuePairs)> pairs(found, api.ReleaseKeyValuePairs);
    const char *const *keys = nullptr, *const *values = nullptr;
    std::size_t count = 0;
    api.GetKeyValuePairs(pairs.get(), &keys, &values, &count);
    ProviderOptions result;
    const std::string prefix = kOptionPrefix;
    for (std::size_t i = 0; i < count; ++i) {
        const std::string key = keys[i], value = values[i];
        if (key.rfind(prefix, 0) != 0) continue;
        const std::string name = key.substr(prefix.size());
        if (name == "build")
            result.build = value;
        else if (name == "model_sha256")
            result.model_sha256 = lower_case(value);
        else if (name == "device")
            result.session.device = value;
        else if (name == "threads")
            result.session.threads = threads_of(value);
        else if (name == "level")
            result.session.level = value;
        else if (name == "board")
            result.session.board = value;
        else
            throw ArgumentError("provider option '" + name +
                                "': expected build, device, threads, level, board or model_sha256");
    }
    return result;
}

Provider::Provider(const OrtApi& api, const OrtLogger& logger, const OrtSessionOptions* options)
    : OrtEp{}, api_(api), logger_(logger) {
    ort_version_supported = kProviderVersion;
    GetName = [](const OrtEp*) noexcept { return kProviderName; };
    GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* support) noexcept {
        Provider& provider = own(self);
        return guarded(provider.api_, [&] { provider.claim(graph, support); });
    };
    Compile = [](OrtEp* self, const OrtGraph**, const OrtNode** nodes, std::size_t count, OrtNodeComputeInfo** infos,
                 OrtNode**) noexcept {
        const Provider& provider = own(self);
        return guarded(provider.api_, [&] {
            for (std::size_t i = 0; i < count; ++i) provider.compile(nodes[i], &infos[i]);
        });
    };
    ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** infos, std::size_t count) noexcept {
        for (std::size_t i = 0; i < count; ++i) delete static_cast<ComputeInfo*>(infos[i]);
    };
    try {
        options_ = ProviderOptions::read(api_, options);
        if (options_.build.empty()) return;
        build_ = std::make_unique<BuildFolder>(options_.build);
        session_ = Session::open(build_->bin(), options_.session);
    } catch (const std::exception& error) {
        refusal_ = error.what();
    }
}

void Provider::log(OrtLoggingLevel level, const std::string& message) const {
    check(api_, api_.Logger_LogMessage(&logger_, level, message.c_str(), ORT_FILE, __LINE__, __func__));
}

// Throws where the graph is not the model that the build was compiled from.
void Provider::check_model(const OrtGraph* graph) const {
    const char* path = nullptr;
    check(api_, api_.Graph_GetModelPath(graph, &path));
    if (path && *path)
        build_->check_model(path);
    else if (options_.model_sha256.empty())
        throw ArgumentError("the model was given as bytes, so its file cannot be compared with " + build_->folder() +
                            "; give the session a path, or the provider option model_sha256");
    if (!options_.model_sha256.empty()) build_->check_digest(options_.model_sha256, "model_sha256");
    check_ends(api_, graph, *session_);
}

// The whole model becomes one node: its NPU partitions run on the device, its CPU partitions in our runtime. ONNX
// Runtime only logs an error of this call and runs the model without us, so what cannot run is claimed as well and
// refused by `compile`, whose error ends the session.
void Provider::claim(const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
    const OrtNode* parent = nullptr;
    check(api_, api_.Graph_GetParentNode(graph, &parent));
    if (parent) return;  // the body of an If or Loop belongs to its node
    if (!build_ && refusal_.empty()) {
        log(ORT_LOGGING_LEVEL_WARNING,
            std::string(kProviderName) +
                " takes nothing: the provider option build (a folder that `npuforge compile` "
                "wrote for this model) is not given");
        return;
    }
    try {
        if (refusal_.empty()) check_model(graph);
    } catch (const std::exception& error) {
        refusal_ = error.what();
    }
    const std::vector<const OrtNode*> nodes = nodes_of(api_, graph);
    if (nodes.empty()) return;
    OrtNodeFusionOptions fusion{};
    fusion.ort_version_supported = kProviderVersion;
    fusion.drop_constant_initializers = true;
    const OrtEpApi* provider_api = api_.GetEpApi();
    check(api_, provider_api->EpGraphSupportInfo_AddNodesToFuse(support, nodes.data(), nodes.size(), &fusion));
    if (refusal_.empty())
        log(ORT_LOGGING_LEVEL_INFO, std::string(kProviderName) + " takes all " + std::to_string(nodes.size()) +
                                        " nodes: " + build_->bin() + " on " + session_->device_name());
}

void Provider::compile(const OrtNode* node, OrtNodeComputeInfo** info) const {
    if (!refusal_.empty()) throw ArgumentError(refusal_);
    FusedModel model(api_, session_, input_names(api_, node), output_names(api_, node));
    *info = new ComputeInfo(std::move(model));
}

}  // namespace npuforge::ort
