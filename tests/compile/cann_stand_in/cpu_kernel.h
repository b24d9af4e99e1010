// Stand-in declarations of CANN's AI CPU kernel interface, from what is known of its interface: what a generated kernel uses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace aicpu {

enum DataType { DT_FLOAT = 0, DT_FLOAT16 = 1, DT_INT8 = 2, DT_INT32 = 3, DT_UINT8 = 4, DT_INT64 = 9, DT_BOOL = 12 };

class AttrValue {
  public:
    std::int64_t GetInt() const { return ints.at(0); }
    float GetFloat() const { return floats.at(0); }
    std::vector<std::int64_t> GetListInt() const { return ints; }
    std::vector<float> GetListFloat() const { return floats; }
    std::vector<std::int64_t> ints;
    std::vector<float> floats;
};
class TensorShape {
  public:
    std::vector<std::int64_t> GetDimSizes() const { return dims; }
    void SetDimSizes(const std::vector<std::int64_t>& value) { dims = value; }
    std::vector<std::int64_t> dims;
};
class Tensor {
  public:
    std::shared_ptr<TensorShape> GetTensorShape() const { return shape; }
    DataType GetDataType() const { return type; }
    void* GetData() const { return data; }
    std::uint64_t GetDataSize() const { return size; }
    std::shared_ptr<TensorShape> shape = std::make_shared<TensorShape>();
    DataType type = DT_FLOAT;
    void* data = nullptr;
    std::uint64_t size = 0;
};
class CpuKernelContext {
  public:
    Tensor* Input(std::uint32_t i) const { return const_cast<Tensor*>(&inputs.at(i)); }
    Tensor* Output(std::uint32_t i) const { return const_cast<Tensor*>(&outputs.at(i)); }
    std::uint32_t GetInputsSize() const { return static_cast<std::uint32_t>(inputs.size()); }
    std::uint32_t GetOutputsSize() const { return static_cast<std::uint32_t>(outputs.size()); }
    AttrValue* GetAttr(std::string name) const {
        const auto found = attributes.find(name);
        return found == attributes.end() ? nullptr : const_cast<AttrValue*>(&found->second);
    }
    std::vector<Tensor> inputs, outputs;
    std::map<std::string, AttrValue> attributes;
};
class CpuKernel {
  public:
    virtual std::uint32_t Compute(CpuKernelContext& context) = 0;
    virtual ~CpuKernel() = default;
};

inline std::map<std::string, std::function<std::shared_ptr<CpuKernel>()>>& kernels() {
    static std::map<std::string, std::function<std::shared_ptr<CpuKernel>()>> all;
    return all;
}

}  // namespace aicpu

#define REGISTER_CPU_KERNEL(type, clazz) \
    static const bool registered_##clazz = (::aicpu::kernels()[type] = [] { return std::make_shared<clazz>(); }, true)
