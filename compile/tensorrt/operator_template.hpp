// A TensorRT plug-in for an operator of npuforge::parallel. `Traits`: the operator as `Op`, and `launch`, which runs it
// on a stream. Part of a generated plug-in source; needs TensorRT 10 or newer.

#include <NvInfer.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#if NV_TENSORRT_MAJOR < 10
#error "these plug-ins are IPluginV3: TensorRT 10 or newer is needed"
#endif

namespace npuforge_operator {

using npuforge::parallel::Attributes;
using npuforge::parallel::Call;
using npuforge::parallel::Element;
using npuforge::parallel::Field;

/// A dimension that TensorRT knows when it runs.
struct Dimension {
    const nvinfer1::IDimensionExpr* value;
    nvinfer1::IExprBuilder* builder;

    Dimension with(nvinfer1::DimensionOperation operation, const nvinfer1::IDimensionExpr& other) const {
        return {builder->operation(operation, *value, other), builder};
    }
    Dimension operator+(const Dimension& b) const { return with(nvinfer1::DimensionOperation::kSUM, *b.value); }
    Dimension operator*(const Dimension& b) const { return with(nvinfer1::DimensionOperation::kPROD, *b.value); }
    Dimension operator+(std::int64_t b) const {
        return with(nvinfer1::DimensionOperation::kSUM, *builder->constant(b));
    }
    Dimension operator*(std::int64_t b) const {
        return with(nvinfer1::DimensionOperation::kPROD, *builder->constant(b));
    }
    Dimension operator/(std::int64_t b) const {
        return with(nvinfer1::DimensionOperation::kFLOOR_DIV, *builder->constant(b));
    }
};

inline nvinfer1::DataType data_type(Element element) {
    return element == Element::kInt64 ? nvinfer1::DataType::kINT64 : nvinfer1::DataType::kFLOAT;
}

inline npuforge::parallel::Dims<std::int64_t> dims_of(const nvinfer1::Dims& dims) {
    return {dims.d, dims.d + dims.nbDims};
}

/// Attributes as TensorRT passes them: floats as float32, integers as int32.
class Fields {
  public:
    Fields(const std::vector<Field>& known, const Attributes* values) {
        floats_.resize(known.size());
        integers_.resize(known.size());
        for (std::size_t i = 0; i < known.size(); ++i) {
            if (values)
                for (const double v : values->list(known[i].name)) {
                    floats_[i].push_back(static_cast<float>(v));
                    integers_[i].push_back(static_cast<std::int32_t>(v));
                }
            const auto count = static_cast<std::int32_t>(floats_[i].size());
            if (known[i].is_float)
                fields_.emplace_back(known[i].name, floats_[i].data(), nvinfer1::PluginFieldType::kFLOAT32, count);
            else
                fields_.emplace_back(known[i].name, integers_[i].data(), nvinfer1::PluginFieldType::kINT32, count);
        }
        collection_.nbFields = static_cast<std::int32_t>(fields_.size());
        collection_.fields = fields_.data();
    }
    Fields(const Fields&) = delete;
    Fields& operator=(const Fields&) = delete;
    const nvinfer1::PluginFieldCollection* collection() const { return &collection_; }

    /// What a node says, else what the operator says; std::invalid_argument for an attribute that neither has.
    static Attributes read(const std::vector<Field>& known, const nvinfer1::PluginFieldCollection& given) {
        Attributes attributes;
        for (const Field& field : known) {
            std::vector<double> values = field.otherwise;
            for (std::int32_t f = 0; f < given.nbFields; ++f)
                if (std::string(field.name) == given.fields[f].name) values = numbers(given.fields[f]);
            if (values.empty()) throw std::invalid_argument(std::string("attribute ") + field.name + " is needed");
            attributes.values[field.name] = values;
        }
        return attributes;
    }

  private:
    template <class T>
    static std::vector<double> copied(const nvinfer1::PluginField& field) {
        const T* data = static_cast<const T*>(field.data);
        return {data, data + field.length};
    }
    static std::vector<double> numbers(const nvinfer1::PluginField& field) {
        switch (field.type) {
            case nvinfer1::PluginFieldType::kFLOAT32:
                return copied<float>(field);
            case nvinfer1::PluginFieldType::kFLOAT64:
                return copied<double>(field);
            case nvinfer1::PluginFieldType::kINT32:
                return copied<std::int32_t>(field);
            case nvinfer1::PluginFieldType::kINT64:
                return copied<std::int64_t>(field);
            default:
                throw std::invalid_argument(std::string("attribute ") + field.name + " is no number");
        }
    }

    std::vector<std::vector<float>> floats_;
    std::vector<std::vector<std::int32_t>> integers_;
    std::vector<nvinfer1::PluginField> fields_;
    nvinfer1::PluginFieldCollection collection_{};
};

/// The result of `work`, `failed` where it throws; the reason goes to TensorRT's log.
template <class Result, class Work>
Result guarded(const char* name, Result failed, Work work) noexcept {
    try {
        return work();
    } catch (const std::exception& error) {
        if (nvinfer1::ILogger* log = getLogger())
            log->log(nvinfer1::ILogger::Severity::kERROR, (std::string(name) + ": " + error.what()).c_str());
        return failed;
    }
}

template <class Traits>
class Plugin final : public nvinfer1::IPluginV3,
                     public nvinfer1::IPluginV3OneCore,
                     public nvinfer1::IPluginV3OneBuild,
                     public nvinfer1::IPluginV3OneRuntime {
    using Op = typename Traits::Op;

  public:
    explicit Plugin(Attributes attributes) : attributes_(std::move(attributes)), op_(attributes_) {}

    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override {
        if (type == nvinfer1::PluginCapabilityType::kBUILD) return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
        if (type == nvinfer1::PluginCapabilityType::kRUNTIME) return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
        return static_cast<nvinfer1::IPluginV3OneCore*>(this);
    }
    nvinfer1::IPluginV3* clone() noexcept override {
        return guarded<nvinfer1::IPluginV3*>(Op::name, nullptr, [&] {
            auto copy = std::make_unique<Plugin>(attributes_);
            copy->inputs_ = inputs_;
            return copy.release();
        });
    }
    const char* getPluginName() const noexcept override { return Op::name; }
    const char* getPluginVersion() const noexcept override { return "1"; }
    const char* getPluginNamespace() const noexcept override { return ""; }

    std::int32_t getNbOutputs() const noexcept override {
        return static_cast<std::int32_t>(Op::outputs().size()) + (op_.open_axis() >= 0 ? 1 : 0);
    }
    std::int32_t configurePlugin(const nvinfer1::DynamicPluginTensorDesc*, std::int32_t inputs,
                                 const nvinfer1::DynamicPluginTensorDesc*, std::int32_t) noexcept override {
        inputs_ = inputs;
        return 0;
    }
    bool supportsFormatCombination(std::int32_t position, const nvinfer1::DynamicPluginTensorDesc* tensors,
                                   std::int32_t inputs, std::int32_t) noexcept override {
        const auto i = static_cast<std::size_t>(position < inputs ? position : position - inputs);
        const nvinfer1::DataType wanted = position < inputs ? data_type(Op::input(i)) : output_type(i);
        return tensors[position].desc.type == wanted &&
               tensors[position].desc.format == nvinfer1::TensorFormat::kLINEAR;
    }
    std::int32_t getOutputDataTypes(nvinfer1::DataType* types, std::int32_t outputs, const nvinfer1::DataType*,
                                    std::int32_t) const noexcept override {
        for (std::int32_t i = 0; i < outputs; ++i) types[i] = output_type(static_cast<std::size_t>(i));
        return 0;
    }
    std::int32_t getOutputShapes(const nvinfer1::DimsExprs* inputs, std::int32_t input_count,
                                 const nvinfer1::DimsExprs*, std::int32_t, nvinfer1::DimsExprs* outputs,
                                 std::int32_t output_count, nvinfer1::IExprBuilder& builder) noexcept override {
        return guarded<std::int32_t>(Op::name, -1, [&] {
            std::vector<npuforge::parallel::Dims<Dimension>> in(static_cast<std::size_t>(input_count)), out;
            for (std::size_t i = 0; i < in.size(); ++i)
                for (std::int32_t d = 0; d < inputs[i].nbDims; ++d) in[i].push_back({inputs[i].d[d], &builder});
            op_.shapes(in, out);
            for (std::size_t i = 0; i < out.size() && i < static_cast<std::size_t>(output_count); ++i) {
                outputs[i].nbDims = static_cast<std::int32_t>(out[i].size());
                for (std::size_t d = 0; d < out[i].size(); ++d) outputs[i].d[d] = out[i][d].value;
            }
            if (const std::int64_t axis = op_.open_axis(); axis >= 0) {
                const nvinfer1::IDimensionExpr& most = *outputs[0].d[axis];
                const nvinfer1::IDimensionExpr* size = builder.declareSizeTensor(output_count - 1, most, most);
                for (std::int32_t i = 0; i + 1 < output_count; ++i) outputs[i].d[axis] = size;
                outputs[output_count - 1].nbDims = 0;
            }
            return 0;
        });
    }
    std::size_t getWorkspaceSize(const nvinfer1::DynamicPluginTensorDesc* inputs, std::int32_t count,
                                 const nvinfer1::DynamicPluginTensorDesc*, std::int32_t) const noexcept override {
        return guarded<std::size_t>(Op::name, 0, [&] {
            Call call;
            for (std::int32_t i = 0; i < count; ++i) call.input_dims.push_back(dims_of(inputs[i].max));
            return op_.workspace(call);
        });
    }

    std::int32_t onShapeChange(const nvinfer1::PluginTensorDesc*, std::int32_t inputs,
                               const nvinfer1::PluginTensorDesc*, std::int32_t) noexcept override {
        inputs_ = inputs;
        return 0;
    }
    std::int32_t enqueue(const nvinfer1::PluginTensorDesc* input_tensors,
                         const nvinfer1::PluginTensorDesc* output_tensors, const void* const* inputs,
                         void* const* outputs, void* workspace, cudaStream_t stream) noexcept override {
        return guarded<std::int32_t>(Op::name, -1, [&] {
            Call call;
            call.workspace = workspace;
            for (std::int32_t i = 0; i < inputs_; ++i) {
                call.input_dims.push_back(dims_of(input_tensors[i].dims));
                call.inputs.push_back(inputs[i]);
            }
            for (std::int32_t i = 0; i < getNbOutputs(); ++i) {
                call.output_dims.push_back(dims_of(output_tensors[i].dims));
                call.outputs.push_back(outputs[i]);
            }
            return static_cast<std::int32_t>(Traits::launch(op_, call, stream));
        });
    }
    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override { return clone(); }
    const nvinfer1::PluginFieldCollection* getFieldsToSerialize() noexcept override {
        return guarded<const nvinfer1::PluginFieldCollection*>(Op::name, nullptr, [&] {
            serialised_ = std::make_unique<Fields>(Op::fields(), &attributes_);
            return serialised_->collection();
        });
    }

  private:
    static nvinfer1::DataType output_type(std::size_t i) {
        const std::vector<Element> types = Op::outputs();
        return i < types.size() ? data_type(types[i]) : nvinfer1::DataType::kINT32;  // the size tensor
    }

    Attributes attributes_;
    Op op_;
    std::int32_t inputs_ = 0;
    std::unique_ptr<Fields> serialised_;
};

template <class Traits>
class Creator final : public nvinfer1::IPluginCreatorV3One {
    using Op = typename Traits::Op;

  public:
    Creator() : fields_(Op::fields(), nullptr) {}
    nvinfer1::IPluginV3* createPlugin(const char*, const nvinfer1::PluginFieldCollection* given,
                                      nvinfer1::TensorRTPhase) noexcept override {
        return guarded<nvinfer1::IPluginV3*>(Op::name, nullptr, [&]() -> nvinfer1::IPluginV3* {
            return new Plugin<Traits>(Fields::read(Op::fields(), *given));
        });
    }
    const nvinfer1::PluginFieldCollection* getFieldNames() noexcept override { return fields_.collection(); }
    const char* getPluginName() const noexcept override { return Op::name; }
    const char* getPluginVersion() const noexcept override { return "1"; }
    const char* getPluginNamespace() const noexcept override { return ""; }

  private:
    Fields fields_;
};

}  // namespace npuforge_operator
