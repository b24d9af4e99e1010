// Size-class recycling of aligned buffers.
#include "npuforge/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "npuforge/device.hpp"

namespace npuforge {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmallest = 64;
constexpr std::size_t kClasses = 4 * 40;

}  // namespace

std::size_t MemoryPool::class_bytes(std::size_t index) {
    const std::size_t base = kSmallest << (index / 4);
    return base + base / 4 * (index % 4);
}

std::size_t MemoryPool::class_of(std::size_t bytes) {
    std::size_t index = 0;
    while (index < kClasses && class_bytes(index) < bytes) ++index;
    if (index == kClasses) throw Error("memory pool: no size class for " + std::to_string(bytes) + " bytes");
    return index;
}

MemoryPool::~MemoryPool() { trim(); }

MemoryPool::Buffer MemoryPool::acquire(std::size_t bytes) {
    const std::size_t size_class = class_of(std::max<std::size_t>(bytes, 1));
    const std::size_t rounded = (class_bytes(size_class) + kAlignment - 1) / kAlignment * kAlignment;
    std::uint8_t* data = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (free_.size() <= size_class) free_.resize(size_class + 1);
        auto& list = free_[size_class];
        if (!list.empty()) {
            data = list.back();
            list.pop_back();
            statistics_.bytes_cached -= rounded;
            ++statistics_.recycled;
        } else {
            ++statistics_.allocations;
        }
        statistics_.bytes_in_use += rounded;
        statistics_.peak_in_use = std::max(statistics_.peak_in_use, statistics_.bytes_in_use);
    }
    if (!data) data = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, rounded));
    if (!data) {
        const std::lock_guard<std::mutex> lock(mutex_);
        statistics_.bytes_in_use -= rounded;
        throw Error("memory pool: the system has no " + std::to_string(rounded) + " bytes");
    }
    std::memset(data, 0, rounded);  // no data of another request shows through
    Buffer buffer;
    buffer.pool_ = this;
    buffer.data_ = data;
    buffer.size_ = rounded;
    buffer.size_class_ = size_class;
    return buffer;
}

void MemoryPool::release(std::uint8_t* data, std::size_t size_class, std::size_t size) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        statistics_.bytes_in_use -= size;
        if (statistics_.bytes_cached + size <= max_cached_) {
            try {
                free_[size_class].push_back(data);
                statistics_.bytes_cached += size;
                return;
            } catch (const std::bad_alloc&) {  // no room in the list: give the buffer back instead
            }
        }
    }
    std::free(data);
}

void MemoryPool::trim() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& list : free_) {
        for (std::uint8_t* data : list) std::free(data);
        list.clear();
    }
    statistics_.bytes_cached = 0;
}

MemoryPool::Statistics MemoryPool::statistics() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return statistics_;
}

MemoryPool& MemoryPool::shared() {
    static MemoryPool* pool = new MemoryPool();  // never destroyed: buffers may outlive static destruction order
    return *pool;
}

}  // namespace npuforge
