// The memory pool: 64-byte aligned buffers recycled by size class across requests, sessions and models. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace npuforge {

class MemoryPool {
  public:
    /// Owns one buffer and gives it back to its pool.
    class Buffer {
      public:
        Buffer() = default;
        Buffer(Buffer&& other) noexcept { swap(other); }
        Buffer& operator=(Buffer&& other) noexcept {
            Buffer moved(std::move(other));
            swap(moved);
            return *this;
        }
        ~Buffer() {
            if (data_) pool_->release(data_, size_class_, size_);
        }
        std::uint8_t* data() const { return data_; }
        std::size_t size() const { return size_; }

      private:
        friend class MemoryPool;
        void swap(Buffer& other) noexcept {
            std::swap(pool_, other.pool_);
            std::swap(data_, other.data_);
            std::swap(size_, other.size_);
            std::swap(size_class_, other.size_class_);
        }
        MemoryPool* pool_ = nullptr;
        std::uint8_t* data_ = nullptr;
        std::size_t size_ = 0, size_class_ = 0;
    };

    struct Statistics {
        std::size_t bytes_in_use = 0;   ///< handed out, rounded up to size classes
        std::size_t bytes_cached = 0;   ///< kept for the next request
        std::size_t peak_in_use = 0;    ///< highest bytes_in_use so far
        std::uint64_t allocations = 0;  ///< taken from the system
        std::uint64_t recycled = 0;     ///< taken from the cache
    };

    /// `max_cached`: bytes kept at most; beyond that, released buffers go back to the system.
    explicit MemoryPool(std::size_t max_cached = std::size_t{256} << 20) : max_cached_(max_cached) {}
    MemoryPool(const MemoryPool&) = delete;
    MemoryPool& operator=(const MemoryPool&) = delete;
    ~MemoryPool();

    /// A zeroed buffer of at least `bytes` (0 counts as 1). Throws Error when the system has no memory.
    Buffer acquire(std::size_t bytes);
    /// Gives every cached buffer back to the system.
    void trim();
    Statistics statistics() const;

    /// The pool that sessions use; lives as long as the process.
    static MemoryPool& shared();

    /// Bytes of size class `index`: 64, 80, 96, 112, 128, 160, ... four steps per power of two.
    static std::size_t class_bytes(std::size_t index);
    static std::size_t class_of(std::size_t bytes);

  private:
    void release(std::uint8_t* data, std::size_t size_class, std::size_t size);

    mutable std::mutex mutex_;
    std::vector<std::vector<std::uint8_t*>> free_;  ///< by size class
    std::size_t max_cached_;
    Statistics statistics_;
};

}  // namespace npuforge
