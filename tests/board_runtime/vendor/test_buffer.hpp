// A tensor buffer for tests at any of the vendor's locations. Compiles against the stand-ins and against the vendor's
// own headers.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vart/tensor_buffer.hpp>
#include <vector>
#include <xir/tensor/tensor.hpp>

using Bytes = std::vector<char>;
using Location = vart::TensorBuffer::location_t;

// Every entry of the batch is an allocation of its own; a device buffer shows no address.
class TestBuffer : public vart::TensorBuffer {
  public:
    TestBuffer(const xir::Tensor* tensor, Location location) : TensorBuffer(tensor), location_(location) {
        std::size_t bytes = static_cast<std::size_t>(tensor->get_data_type().bit_width / 8);
        const auto shape = tensor->get_shape();
        for (std::size_t axis = 1; axis < shape.size(); ++axis) bytes *= static_cast<std::size_t>(shape[axis]);
        entries.assign(static_cast<std::size_t>(shape[0]), Bytes(bytes));
    }
    std::pair<std::uint64_t, std::size_t> data(const std::vector<std::int32_t> index = {}) override {
        if (location_ != Location::HOST_VIRT && location_ != Location::HOST_PHY) return {0, 0};
        Bytes& entry = entries.at(index.empty() ? 0 : static_cast<std::size_t>(index[0]));
        return {reinterpret_cast<std::uint64_t>(entry.data()), entry.size()};
    }
    Location get_location() const override { return location_; }
    void sync_for_read(std::uint64_t, std::size_t) override { ++reads; }
    void sync_for_write(std::uint64_t, std::size_t) override { ++writes; }
    void copy_from_host(std::size_t batch, const void* from, std::size_t size, std::size_t offset) override {
        std::memcpy(entries.at(batch).data() + offset, from, size);
    }
    void copy_to_host(std::size_t batch, void* to, std::size_t size, std::size_t offset) override {
        std::memcpy(to, entries.at(batch).data() + offset, size);
    }

    std::vector<Bytes> entries;
    int reads = 0, writes = 0;

  private:
    Location location_;
};
