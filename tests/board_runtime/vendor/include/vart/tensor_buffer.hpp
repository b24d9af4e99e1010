// Stand-in, see ../xir/util/data_type.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>
#include <xir/tensor/tensor.hpp>

namespace vart {

class TensorBuffer {
  public:
    enum class location_t { HOST_VIRT = 0, HOST_PHY = 1, DEVICE_0 = 2, DEVICE_1 = 3 };

    explicit TensorBuffer(const xir::Tensor* tensor) : tensor_(tensor) {}
    virtual ~TensorBuffer() = default;
    const xir::Tensor* get_tensor() const { return tensor_; }
    virtual std::pair<std::uint64_t, std::size_t> data(const std::vector<std::int32_t> index = {}) = 0;
    virtual location_t get_location() const { return location_t::HOST_VIRT; }
    virtual void sync_for_read(std::uint64_t, std::size_t) {}
    virtual void sync_for_write(std::uint64_t, std::size_t) {}
    virtual void copy_from_host(std::size_t batch, const void* from, std::size_t size, std::size_t offset) {
        std::memcpy(at(batch) + offset, from, size);
    }
    virtual void copy_to_host(std::size_t batch, void* to, std::size_t size, std::size_t offset) {
        std::memcpy(to, at(batch) + offset, size);
    }

  private:
    char* at(std::size_t batch) {
        std::vector<std::int32_t> index(tensor_->get_shape().size(), 0);
        index[0] = static_cast<std::int32_t>(batch);
        return reinterpret_cast<char*>(data(index).first);
    }
    const xir::Tensor* tensor_;
};

}  // namespace vart
