// Inside the session: the state of one run in flight, and small helpers that both kinds of run share.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npuforge/session.hpp"

namespace npuforge {

/// What one run in flight needs: the pool of the NPU, the arena of the CPU partitions, the device's own state.
struct Session::Context {
    MemoryPool::Buffer pool, arena;
    std::unique_ptr<DeviceContext> device;
    CpuPlan::Bindings bindings;
    std::vector<InputBuffer> inputs;  ///< by index of Program::inputs
    std::map<int, std::vector<std::uint8_t>>
        rows;  ///< by tensor: rows that the data decided, given to a partition alone
};

/// A context for the duration of one run; counts the run and gives the context back whatever happens.
class Session::Lease {
  public:
    explicit Lease(Session& session) : session_(session), start_(std::chrono::steady_clock::now()) {
        session.metrics_.enter();
        try {
            context_ = session.acquire();
        } catch (...) {
            session.metrics_.leave();
            session.metrics_.record({}, true);
            throw;
        }
    }
    ~Lease() {
        session_.metrics_.record(std::chrono::steady_clock::now() - start_, !done_);
        session_.metrics_.leave();
        session_.release(std::move(context_));
    }
    Context& context() { return *context_; }
    std::chrono::steady_clock::time_point start() const { return start_; }
    void done() { done_ = true; }

  private:
    Session& session_;
    std::chrono::steady_clock::time_point start_;
    std::unique_ptr<Context> context_;
    bool done_ = false;
};

template <typename T>
void transpose_elements(const T* from, T* to, std::int64_t outer, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t n = 0; n < outer; ++n, from += rows * columns, to += rows * columns)
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
}

// A feature map of any element type in N, C, H, W as N, H, W, C, or the other way round.
inline void transpose_map(cpu::Type type, const void* from, void* to, std::int64_t outer, std::int64_t rows,
                          std::int64_t columns) {
    const auto as = [&](auto element) {
        using T = decltype(element);
        transpose_elements(static_cast<const T*>(from), static_cast<T*>(to), outer, rows, columns);
    };
    switch (type) {
        case cpu::Type::kFloat32:
            return as(float{});
        case cpu::Type::kInt64:
            return as(std::int64_t{});
        case cpu::Type::kInt32:
            return as(std::int32_t{});
        default:
            return as(std::uint8_t{});  // bool, uint8, int8
    }
}

inline cpu::Shape nhwc_shape(const cpu::Shape& s) {
    return s.rank == 4 ? cpu::Shape{s.dim[0], s.dim[2], s.dim[3], s.dim[1]} : s;
}

// Text is made only for the message: a run that succeeds allocates nothing.
inline void expect_shape(const std::string& name, const cpu::Shape& expected, const cpu::Shape& found) {
    if (expected != found)
        throw ArgumentError("input '" + name + "': shape expected " + expected.text() + ", found " + found.text());
}

inline void expect_type(const std::string& name, cpu::Type expected, cpu::Type found) {
    if (expected != found)
        throw ArgumentError("input '" + name + "': type expected " + cpu::type_name(expected) + ", found " +
                            cpu::type_name(found));
}

}  // namespace npuforge
