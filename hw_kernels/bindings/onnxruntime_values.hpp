// ONNX Runtime's statuses, element types and tensors as ours: what the custom operators and the execution provider
// share.
#pragma once

#include <onnxruntime_c_api.h>

#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "npuforge/cpu.hpp"

namespace npuforge::ort {

constexpr struct {
    cpu::Type own;
    ONNXTensorElementDataType theirs;
} kElementTypes[] = {{cpu::Type::kFloat32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
                     {cpu::Type::kInt64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
                     {cpu::Type::kInt32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
                     {cpu::Type::kBool, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL},
                     {cpu::Type::kUint8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},
                     {cpu::Type::kInt8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8}};

inline ONNXTensorElementDataType element_type(cpu::Type type) {
    for (const auto& entry : kElementTypes)
        if (entry.own == type) return entry.theirs;
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

/// Throws Error with ONNX Runtime's words where a call failed.
inline void check(const OrtApi& api, OrtStatus* status) {
    if (!status) return;
    const std::string message = api.GetErrorMessage(status);
    api.ReleaseStatus(status);
    throw Error(message);
}

/// `f()`, an exception of which becomes a status.
template <typename F>
OrtStatus* guarded(const OrtApi& api, F f) {
    try {
        f();
        return nullptr;
    } catch (const std::exception& error) {
        return api.CreateStatus(ORT_FAIL, error.what());
    }
}

/// Type, shape and data of a tensor value; the data stay ONNX Runtime's.
inline cpu::Tensor tensor_of(const OrtApi& api, const OrtValue* value, const std::string& what) {
    OrtTensorTypeAndShapeInfo* found = nullptr;
    check(api, api.GetTensorTypeAndShape(value, &found));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(api.ReleaseTensorTypeAndShapeInfo)> info(
        found, api.ReleaseTensorTypeAndShapeInfo);
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::size_t rank = 0;
    check(api, api.GetTensorElementType(info.get(), &type));
    check(api, api.GetDimensionsCount(info.get(), &rank));
    std::vector<std::int64_t> dims(rank);
    check(api, api.GetDimensions(info.get(), dims.data(), rank));
    cpu::Tensor tensor;
    const auto* entry = std::begin(kElementTypes);
    while (entry != std::end(kElementTypes) && entry->theirs != type) ++entry;
    if (entry == std::end(kElementTypes))
        throw Error(what + ": element type expected float32, int64, int32, bool, uint8 or int8, found ONNX type " +
                    std::to_string(static_cast<int>(type)));
    tensor.type = entry->own;
    tensor.shape = cpu::Shape(dims);
    check(api, api.GetTensorMutableData(const_cast<OrtValue*>(value), &tensor.data));  // read only for inputs
    tensor.constant = true;
    return tensor;
}

}  // namespace npuforge::ort
