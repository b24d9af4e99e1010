// ONNX Runtime custom operators over the CPU kernels of the operator folders (hw_kernels/ops/<op>/cpu.hpp). Owns the
// translation between ONNX Runtime's C API and `npuforge::cpu`; which operators there are is the includer's list of
// signatures. Needs onnxruntime_c_api.h of version 17 or newer; links with nothing of ONNX Runtime.
#pragma once

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hw_kernels/bindings/onnxruntime_values.hpp"
#include "npuforge/cpu.hpp"
#include "npuforge/json.hpp"

namespace npuforge::ort {

constexpr std::uint32_t kCustomOpVersion = 17;  ///< the oldest ONNX Runtime API that has all that is used here

/// What a schema says of one operator. Inputs from `required` on may be left out, outputs but the first as well.
struct Signature {
    const char* domain;
    const char* type;
    std::vector<cpu::Type> inputs;
    std::size_t required;
    std::vector<cpu::Type> outputs;
    std::vector<const char*> attributes;  ///< names
};

/// One node of a session: attributes read, kernel made. Immutable; any number of threads compute with it.
class CustomKernel {
  public:
    CustomKernel(const OrtApi& api, const OrtKernelInfo* info, const Signature& signature) : api_(api) {
        node_.op = std::string(signature.domain) + "::" + signature.type;
        std::size_t size = 0, inputs = 0, outputs = 0;
        check(api, api.KernelInfo_GetNodeName(info, nullptr, &size));
        std::vector<char> name(size);
        check(api, api.KernelInfo_GetNodeName(info, name.data(), &size));
        node_.name = name.data();
        check(api, api.KernelInfo_GetInputCount(info, &inputs));
        check(api, api.KernelInfo_GetOutputCount(info, &outputs));
        for (std::size_t i = 0; i < inputs; ++i) node_.inputs.push_back("x" + std::to_string(i));
        for (std::size_t i = 0; i < outputs; ++i) node_.outputs.push_back("y" + std::to_string(i));
        json::Object attributes;
        for (const char* attribute : signature.attributes) {
            json::Value value = read(info, attribute);
            if (!value.is_null()) attributes.emplace(attribute, std::move(value));
        }
        node_.attrs = json::Value(std::move(attributes));
        const cpu::Factory* factory = cpu::Registry::instance().find(node_.op);
        if (!factory) throw Error("operator " + node_.op + " is not part of this library");
        kernel_ = (*factory)(cpu::NodeInfo(node_));
    }
    CustomKernel(const CustomKernel&) = delete;
    CustomKernel& operator=(const CustomKernel&) = delete;

    const OrtApi& api() const { return api_; }

    void compute(OrtKernelContext* context) const {
        const std::string where = "node '" + node_.name + "', input ";
        std::size_t given = 0;
        check(api_, api_.KernelContext_GetInputCount(context, &given));
        std::vector<cpu::Tensor> inputs(given), outputs(node_.outputs.size());
        std::vector<const cpu::Tensor*> in(given, nullptr);
        std::vector<cpu::Tensor*> out;
        for (std::size_t i = 0; i < given; ++i) {
            const OrtValue* value = nullptr;
            check(api_, api_.KernelContext_GetInput(context, i, &value));
            if (!value) continue;  // an optional input that was left out
            inputs[i] = tensor_of(api_, value, where + std::to_string(i));
            in[i] = &inputs[i];
        }
        for (cpu::Tensor& tensor : outputs) out.push_back(&tensor);
        cpu::Args args{in.data(), in.size(), out.data(), out.size(), nullptr};
        cpu::infer(cpu::NodeInfo(node_), kernel_, args);
        std::vector<std::uint8_t> scratch(kernel_.scratch ? kernel_.scratch(args) : 0);
        args.scratch = scratch.data();
        std::vector<std::vector<std::uint8_t>> own(outputs.size());  // of results whose size is not known before
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            if (!kernel_.dynamic) outputs[i].data = place(context, i, outputs[i]);
            if (outputs[i].data) continue;
            own[i].resize(outputs[i].bytes());
            outputs[i].data = own[i].data();
        }
        kernel_.run(args);
        if (kernel_.alias) std::memcpy(outputs[0].data, inputs[0].data, inputs[0].bytes());
        if (!kernel_.dynamic) return;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            void* target = place(context, i, outputs[i]);
            if (target && outputs[i].bytes()) std::memcpy(target, outputs[i].data, outputs[i].bytes());
        }
    }

  private:
    /// Memory of output `i`; nullptr where the node does not give it.
    void* place(OrtKernelContext* context, std::size_t i, const cpu::Tensor& tensor) const {
        OrtValue* value = nullptr;
        const auto rank = static_cast<std::size_t>(tensor.shape.rank);
        check(api_, api_.KernelContext_GetOutput(context, i, tensor.shape.dim, rank, &value));
        void* data = nullptr;
        if (value) check(api_, api_.GetTensorMutableData(value, &data));
        return data;
    }

    /// Whether a call that reads an attribute found it with that type.
    bool found(OrtStatus* status) const {
        if (status) api_.ReleaseStatus(status);
        return !status;
    }

    /// A number, a text or a list of numbers; null where the node lacks the attribute.
    json::Value read(const OrtKernelInfo* info, const char* name) const {
        std::int64_t integer = 0;
        float number = 0.0f;
        std::size_t size = 0;
        if (found(api_.KernelInfoGetAttribute_int64(info, name, &integer))) return json::Value(integer);
        if (found(api_.KernelInfoGetAttribute_float(info, name, &number)))
            return json::Value(static_cast<double>(number));
        // A list of the other type is found as well, as one without elements.
        bool list = found(api_.KernelInfoGetAttributeArray_int64(info, name, nullptr, &size));
        json::Array array;
        if (list && size > 0) {
            std::vector<std::int64_t> values(size);
            check(api_, api_.KernelInfoGetAttributeArray_int64(info, name, values.data(), &size));
            for (const std::int64_t value : values) array.emplace_back(value);
            return json::Value(std::move(array));
        }
        list = found(api_.KernelInfoGetAttributeArray_float(info, name, nullptr, &size)) || list;
        if (list) {
            std::vector<float> values(size);
            if (size > 0) check(api_, api_.KernelInfoGetAttributeArray_float(info, name, values.data(), &size));
            for (const float value : values) array.emplace_back(static_cast<double>(value));
            return json::Value(std::move(array));
        }
        if (found(api_.KernelInfoGetAttribute_string(info, name, nullptr, &size))) {
            std::vector<char> text(size + 1);
            check(api_, api_.KernelInfoGetAttribute_string(info, name, text.data(), &size));
            return json::Value(std::string(text.data()));
        }
        return {};
    }

    const OrtApi& api_;
    CpuNode node_;
    cpu::Kernel kernel_;
};

/// What ONNX Runtime holds of one operator type.
class CustomOp : public OrtCustomOp {
  public:
    CustomOp(const OrtApi& api, Signature signature) : OrtCustomOp{}, api_(api), signature_(std::move(signature)) {
        version = kCustomOpVersion;
        GetName = [](const OrtCustomOp* op) { return own(op).signature_.type; };
        GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
        GetInputTypeCount = [](const OrtCustomOp* op) { return own(op).signature_.inputs.size(); };
        GetInputType = [](const OrtCustomOp* op, std::size_t i) { return element_type(own(op).signature_.inputs[i]); };
        GetInputCharacteristic = [](const OrtCustomOp* op, std::size_t i) {
            return i < own(op).signature_.required ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
        };
        GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return OrtMemTypeDefault; };
        GetOutputTypeCount = [](const OrtCustomOp* op) { return own(op).signature_.outputs.size(); };
        GetOutputType = [](const OrtCustomOp* op, std::size_t i) {
            return element_type(own(op).signature_.outputs[i]);
        };
        GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t i) {
            return i == 0 ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
        };
        GetStartVersion = [](const OrtCustomOp*) { return 1; };
        GetEndVersion = [](const OrtCustomOp*) { return std::numeric_limits<int>::max(); };
        CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info, void** kernel) {
            const CustomOp& self = own(op);
            return guarded(self.api_, [&] { *kernel = new CustomKernel(self.api_, info, self.signature_); });
        };
        KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
            const auto& self = *static_cast<const CustomKernel*>(kernel);
            return guarded(self.api(), [&] { self.compute(context); });
        };
        KernelDestroy = [](void* kernel) { delete static_cast<CustomKernel*>(kernel); };
    }

  private:
    static const CustomOp& own(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

    const OrtApi& api_;
    Signature signature_;
};

/// Adds the operators to a session's options: the body of `RegisterCustomOps`. They live as long as the process.
inline OrtStatus* register_custom_ops(OrtSessionOptions* options, const OrtApiBase* base,
                                      const std::vector<Signature>& signatures) {
    const OrtApi* api = base->GetApi(kCustomOpVersion);
    if (!api) return nullptr;  // before 1.17: without this version of the API there is no way to say so
    return guarded(*api, [&] {
        static const std::vector<OrtCustomOpDomain*> domains = [&] {
            static std::vector<std::unique_ptr<CustomOp>> operators;
            std::map<std::string, OrtCustomOpDomain*> by_name;
            for (const Signature& signature : signatures) {
                OrtCustomOpDomain*& domain = by_name[signature.domain];
                if (!domain) check(*api, api->CreateCustomOpDomain(signature.domain, &domain));
                operators.push_back(std::make_unique<CustomOp>(*api, signature));
                check(*api, api->CustomOpDomain_Add(domain, operators.back().get()));
            }
            std::vector<OrtCustomOpDomain*> made;
            for (const auto& entry : by_name) made.push_back(entry.second);
            return made;
        }();
        for (OrtCustomOpDomain* domain : domains) check(*api, api->AddCustomOpDomain(options, domain));
    });
}

}  // namespace npuforge::ort
