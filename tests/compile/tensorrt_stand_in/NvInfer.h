// Stand-in declarations of TensorRT 10, written from its documentation: what a generated IPluginV3 uses. Dimension
// expressions are numbers here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"

#define NV_TENSORRT_MAJOR 10

namespace nvinfer1 {

using AsciiChar = char;
enum class DataType : std::int32_t { kFLOAT, kHALF, kINT8, kINT32, kBOOL, kUINT8, kFP8, kBF16, kINT64 };
enum class TensorFormat : std::int32_t { kLINEAR, kCHW2 };
enum class PluginFieldType : std::int32_t {
    kFLOAT16,
    kFLOAT32,
    kFLOAT64,
    kINT8,
    kINT16,
    kINT32,
    kCHAR,
    kDIMS,
    kUNKNOWN,
    kBF16,
    kINT64
};
enum class PluginCapabilityType : std::int32_t { kCORE, kBUILD, kRUNTIME };
enum class TensorRTPhase : std::int32_t { kBUILD, kRUNTIME };
enum class DimensionOperation : std::int32_t { kSUM, kPROD, kMAX, kMIN, kSUB, kEQUAL, kLESS, kFLOOR_DIV, kCEIL_DIV };

struct Dims {
    std::int32_t nbDims;
    std::int64_t d[8];
};
class IDimensionExpr {
  public:
    explicit IDimensionExpr(std::int64_t value, bool size_tensor = false) : value_(value), size_tensor_(size_tensor) {}
    bool isConstant() const noexcept { return true; }
    std::int64_t getConstantValue() const noexcept { return value_; }
    bool isSizeTensor() const noexcept { return size_tensor_; }

  private:
    std::int64_t value_;
    bool size_tensor_;
};
struct DimsExprs {
    std::int32_t nbDims;
    IDimensionExpr const* d[8];
};
class IExprBuilder {
  public:
    IDimensionExpr const* constant(std::int64_t value) noexcept { return kept(value, false); }
    IDimensionExpr const* operation(DimensionOperation op, IDimensionExpr const& a, IDimensionExpr const& b) noexcept {
        const std::int64_t x = a.getConstantValue(), y = b.getConstantValue();
        switch (op) {
            case DimensionOperation::kSUM:
                return kept(x + y, false);
            case DimensionOperation::kPROD:
                return kept(x * y, false);
            case DimensionOperation::kFLOOR_DIV:
                return kept(x / y, false);
            default:
                return nullptr;
        }
    }
    IDimensionExpr const* declareSizeTensor(std::int32_t output, IDimensionExpr const&, IDimensionExpr const& upper) {
        size_output = output;
        return kept(upper.getConstantValue(), true);
    }
    std::int32_t size_output = -1;

  private:
    IDimensionExpr const* kept(std::int64_t value, bool size_tensor) {
        all_.push_back(std::make_unique<IDimensionExpr>(value, size_tensor));
        return all_.back().get();
    }
    std::vector<std::unique_ptr<IDimensionExpr>> all_;
};

struct PluginTensorDesc {
    Dims dims;
    DataType type;
    TensorFormat format;
    float scale;
};
struct DynamicPluginTensorDesc {
    PluginTensorDesc desc;
    Dims min, max, opt;
};
struct PluginField {
    PluginField(AsciiChar const* name_ = nullptr, void const* data_ = nullptr,
                PluginFieldType type_ = PluginFieldType::kUNKNOWN, std::int32_t length_ = 0)
        : name(name_), data(data_), type(type_), length(length_) {}
    AsciiChar const* name;
    void const* data;
    PluginFieldType type;
    std::int32_t length;
};
struct PluginFieldCollection {
    std::int32_t nbFields;
    PluginField const* fields;
};

class ILogger {
  public:
    enum class Severity : std::int32_t { kINTERNAL_ERROR, kERROR, kWARNING, kINFO, kVERBOSE };
    virtual void log(Severity severity, AsciiChar const* message) noexcept = 0;
    virtual ~ILogger() = default;
};
class IPluginResourceContext;
class IPluginCapability {
  public:
    virtual ~IPluginCapability() = default;
};
class IPluginV3 {
  public:
    virtual IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept = 0;
    virtual IPluginV3* clone() noexcept = 0;
    virtual ~IPluginV3() = default;
};
class IPluginV3OneCore : public IPluginCapability {
  public:
    virtual AsciiChar const* getPluginName() const noexcept = 0;
    virtual AsciiChar const* getPluginVersion() const noexcept = 0;
    virtual AsciiChar const* getPluginNamespace() const noexcept = 0;
};
class IPluginV3OneBuild : public IPluginCapability {
  public:
    virtual std::int32_t configurePlugin(DynamicPluginTensorDesc const*, std::int32_t, DynamicPluginTensorDesc const*,
                                         std::int32_t) noexcept = 0;
    virtual std::int32_t getOutputDataTypes(DataType*, std::int32_t, DataType const*, std::int32_t) const noexcept = 0;
    virtual std::int32_t getOutputShapes(DimsExprs const*, std::int32_t, DimsExprs const*, std::int32_t, DimsExprs*,
                                         std::int32_t, IExprBuilder&) noexcept = 0;
    virtual bool supportsFormatCombination(std::int32_t, DynamicPluginTensorDesc const*, std::int32_t,
                                           std::int32_t) noexcept = 0;
    virtual std::int32_t getNbOutputs() const noexcept = 0;
    virtual std::size_t getWorkspaceSize(DynamicPluginTensorDesc const*, std::int32_t, DynamicPluginTensorDesc const*,
                                         std::int32_t) const noexcept {
        return 0;
    }
};
class IPluginV3OneRuntime : public IPluginCapability {
  public:
    virtual std::int32_t onShapeChange(PluginTensorDesc const*, std::int32_t, PluginTensorDesc const*,
                                       std::int32_t) noexcept = 0;
    virtual std::int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const*, void* const*,
                                 void*, cudaStream_t) noexcept = 0;
    virtual IPluginV3* attachToContext(IPluginResourceContext*) noexcept = 0;
    virtual PluginFieldCollection const* getFieldsToSerialize() noexcept = 0;
};
class IPluginCreatorV3One {
  public:
    virtual IPluginV3* createPlugin(AsciiChar const*, PluginFieldCollection const*, TensorRTPhase) noexcept = 0;
    virtual PluginFieldCollection const* getFieldNames() noexcept = 0;
    virtual AsciiChar const* getPluginName() const noexcept = 0;
    virtual AsciiChar const* getPluginVersion() const noexcept = 0;
    virtual AsciiChar const* getPluginNamespace() const noexcept = 0;
    virtual ~IPluginCreatorV3One() = default;
};

inline std::map<std::string, IPluginCreatorV3One*>& registered() {
    static std::map<std::string, IPluginCreatorV3One*> creators;
    return creators;
}
template <class Creator>
struct Registrar {
    Registrar() { registered()[creator.getPluginName()] = &creator; }
    Creator creator;
};

}  // namespace nvinfer1

extern "C" nvinfer1::ILogger* getLogger() noexcept;

#define REGISTER_TENSORRT_PLUGIN(name) static nvinfer1::Registrar<name> registrar_##name
