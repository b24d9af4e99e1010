// What a plug-in does with the vendor's tensor buffers: types, one item of a batch as plain memory, buffers of our own.
// Owns no inference. Facts on the buffers: docs/xmodel.md, "Runner plug-in".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vart/tensor_buffer.hpp>
#include <vector>
#include <xir/tensor/tensor.hpp>

#include "npuforge/runner.hpp"

namespace npuforge::plugin {

/// What a vendor's tensor holds.
struct Element {
    cpu::Type type = cpu::Type::kFloat32;
    bool bf16 = false;  ///< two bytes; `type` is then kFloat32
    std::size_t bytes() const { return bf16 ? 2 : cpu::type_bytes(type); }
    const char* name() const { return bf16 ? "bfloat16" : cpu::type_name(type); }
    bool operator==(const Element& other) const { return type == other.type && bf16 == other.bf16; }
};
/// Throws std::invalid_argument that names the tensor where its type is none of ours.
Element element_of(const xir::Tensor& tensor);

/// A host buffer that the runner owns (`get_inputs`, `get_outputs`): contiguous, row-major.
class HostBuffer : public vart::TensorBuffer {
  public:
    explicit HostBuffer(const xir::Tensor* tensor);
    /// Address of the element at `index` (one entry per dimension, missing ones 0) and the bytes from there to the end.
    std::pair<std::uint64_t, std::size_t> data(const std::vector<std::int32_t> index = {}) override;

  private:
    std::vector<char> bytes_;
};

/// `items` consecutive entries of dimension 0 as memory the host can use: in place where the buffer allows it, else a
/// copy.
class BatchItem {
  public:
    /// `first`: entry of dimension 0; `count`: entries; `input`: fetches the content, else `flush` writes it back.
    /// Throws std::invalid_argument where a buffer on the host has less memory than its tensor.
    BatchItem(vart::TensorBuffer& buffer, const std::string& name, int first, int count, bool input);

    TensorBuffer& native() { return native_; }
    /// Output side: brings a copy to where it belongs and makes host writes visible to devices.
    void flush();

  private:
    vart::TensorBuffer* buffer_;
    int first_, count_;
    std::size_t entry_bytes_ = 0;
    std::unique_ptr<char[]> copy_;
    TensorBuffer native_;
};

}  // namespace npuforge::plugin
