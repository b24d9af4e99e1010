// An element-wise TensorRT plug-in: one float32 tensor in, one of the same shape out. `Traits` names the ONNX operator
// type, its float attributes with their defaults, and the kernel's launcher. Part of a generated plug-in source.

#include <NvInfer.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace npuforge_plugin {

template <class Traits>
class Plugin final : public nvinfer1::IPluginV2DynamicExt {
  public:
    explicit Plugin(std::vector<float> parameters) : parameters_(std::move(parameters)) {}
    Plugin(const void* data, std::size_t length) : parameters_(length / sizeof(float)) {
        if (length) std::memcpy(parameters_.data(), data, parameters_.size() * sizeof(float));
    }

    nvinfer1::IPluginV2DynamicExt* clone() const noexcept override {
        auto* copy = new Plugin(parameters_);
        copy->setPluginNamespace(space_.c_str());
        return copy;
    }
    nvinfer1::DimsExprs getOutputDimensions(std::int32_t, const nvinfer1::DimsExprs* inputs, std::int32_t,
                                            nvinfer1::IExprBuilder&) noexcept override {
        return inputs[0];
    }
    bool supportsFormatCombination(std::int32_t position, const nvinfer1::PluginTensorDesc* tensors, std::int32_t,
                                   std::int32_t) noexcept override {
        return tensors[position].type == nvinfer1::DataType::kFLOAT &&
               tensors[position].format == nvinfer1::TensorFormat::kLINEAR;
    }
    void configurePlugin(const nvinfer1::DynamicPluginTensorDesc*, std::int32_t,
                         const nvinfer1::DynamicPluginTensorDesc*, std::int32_t) noexcept override {}
    std::size_t getWorkspaceSize(const nvinfer1::PluginTensorDesc*, std::int32_t, const nvinfer1::PluginTensorDesc*,
                                 std::int32_t) const noexcept override {
        return 0;
    }
    std::int32_t enqueue(const nvinfer1::PluginTensorDesc* tensors, const nvinfer1::PluginTensorDesc*,
                         const void* const* inputs, void* const* outputs, void*,
                         cudaStream_t stream) noexcept override {
        long long count = 1;
        for (std::int32_t i = 0; i < tensors[0].dims.nbDims; ++i) count *= tensors[0].dims.d[i];
        return Traits::launch(static_cast<const float*>(inputs[0]), static_cast<float*>(outputs[0]), count,
                              parameters_.data(), stream);
    }
    nvinfer1::DataType getOutputDataType(std::int32_t, const nvinfer1::DataType* types,
                                         std::int32_t) const noexcept override {
        return types[0];
    }
    const char* getPluginType() const noexcept override { return Traits::name; }
    const char* getPluginVersion() const noexcept override { return "1"; }
    std::int32_t getNbOutputs() const noexcept override { return 1; }
    std::int32_t initialize() noexcept override { return 0; }
    void terminate() noexcept override {}
    std::size_t getSerializationSize() const noexcept override { return parameters_.size() * sizeof(float); }
    void serialize(void* buffer) const noexcept override {
        if (!parameters_.empty()) std::memcpy(buffer, parameters_.data(), getSerializationSize());
    }
    void destroy() noexcept override { delete this; }
    void setPluginNamespace(const char* space) noexcept override { space_ = space; }
    const char* getPluginNamespace() const noexcept override { return space_.c_str(); }

  private:
    std::vector<float> parameters_;
    std::string space_;
};

template <class Traits>
class Creator final : public nvinfer1::IPluginCreator {
  public:
    Creator() : names_(Traits::names()), values_(Traits::defaults()) {
        for (std::size_t i = 0; i < names_.size(); ++i)
            fields_.emplace_back(names_[i].c_str(), &values_[i], nvinfer1::PluginFieldType::kFLOAT32, 1);
        collection_.nbFields = static_cast<std::int32_t>(fields_.size());
        collection_.fields = fields_.data();
    }
    const char* getPluginName() const noexcept override { return Traits::name; }
    const char* getPluginVersion() const noexcept override { return "1"; }
    const nvinfer1::PluginFieldCollection* getFieldNames() noexcept override { return &collection_; }
    nvinfer1::IPluginV2* createPlugin(const char*, const nvinfer1::PluginFieldCollection* given) noexcept override {
        std::vector<float> parameters = Traits::defaults();
        for (std::int32_t f = 0; f < given->nbFields; ++f)
            for (std::size_t i = 0; i < names_.size(); ++i)
                if (names_[i] == given->fields[f].name && given->fields[f].type == nvinfer1::PluginFieldType::kFLOAT32)
                    parameters[i] = *static_cast<const float*>(given->fields[f].data);
        return named(new Plugin<Traits>(std::move(parameters)));
    }
    nvinfer1::IPluginV2* deserializePlugin(const char*, const void* data, std::size_t length) noexcept override {
        if (length != names_.size() * sizeof(float)) return nullptr;  // of another version of this operator
        return named(new Plugin<Traits>(data, length));
    }
    void setPluginNamespace(const char* space) noexcept override { space_ = space; }
    const char* getPluginNamespace() const noexcept override { return space_.c_str(); }

  private:
    nvinfer1::IPluginV2* named(Plugin<Traits>* plugin) const {
        plugin->setPluginNamespace(space_.c_str());
        return plugin;
    }

    std::vector<std::string> names_;
    std::vector<float> values_;
    std::vector<nvinfer1::PluginField> fields_;
    nvinfer1::PluginFieldCollection collection_{};
    std::string space_;
};

}  // namespace npuforge_plugin
