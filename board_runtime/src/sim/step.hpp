// Owns the executable form of one instruction: a step, divisible into independent units (rows or pixels) that threads
// share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bf16_operation.hpp"
#include "npuforge/sim.hpp"
#include "operation.hpp"
#include "view.hpp"

namespace npuforge::sim {

class Step {
  public:
    virtual ~Step() = default;
    /// Computes units [begin, end). `scratch` is this thread's own, `scratch_bytes` long, 64-byte aligned.
    virtual void run(const Memory& memory, std::uint8_t* scratch, int begin, int end) const = 0;

    std::size_t instruction = 0;  ///< global index
    int units = 1;
    int granularity = 1;            ///< boundaries between threads are multiples of it
    std::size_t scratch_bytes = 0;  ///< per thread
    double cost = 0;                ///< rough processor cycles of all units, for the division of work
    std::vector<View> reads, writes;
    std::string layer;         ///< the same for all row bands of one layer; empty: a layer of its own
    bool loads_image = false;  ///< LOAD from the `.bin`: left out where every reader has its bytes prepared
};

/// Prepared parameters, shared by all instructions that name the same bytes (row bands of a layer).
class PackCache {
  public:
    template <class T, class Make>
    std::shared_ptr<const T> get(const std::string& key, Make make) {
        std::shared_ptr<const void>& slot = packs_[key];
        if (!slot) slot = std::shared_ptr<const T>(make());
        return std::static_pointer_cast<const T>(slot);
    }

  private:
    std::map<std::string, std::shared_ptr<const void>> packs_;
};

/// Parameter bytes that are known at load; unused ones are null. `key` names them (where they come from).
struct Constants {
    const std::uint8_t* weight = nullptr;
    const std::uint8_t* bias = nullptr;
    const std::uint8_t* pad = nullptr;
    const std::uint8_t* requant = nullptr;
    const std::uint8_t* table = nullptr;
    const std::uint8_t* record = nullptr;  ///< bf16 stage
    const std::uint8_t* operand = nullptr;
    const std::uint8_t* sum_requant = nullptr;
    const std::uint8_t* rows = nullptr;
    const std::uint8_t* cols = nullptr;
    std::string key;
};

/// Prepares steps for one instruction set. A null result means: leave it to the portable engine.
class Engine {
  public:
    virtual ~Engine() = default;
    virtual std::unique_ptr<Step> conv(const ConvOp&, const Constants&, PackCache&) const { return nullptr; }
    virtual std::unique_ptr<Step> depthwise(const ConvOp&, const Constants&, PackCache&) const { return nullptr; }
    virtual std::unique_ptr<Step> pool(const PoolOp&, const Constants&, PackCache&) const { return nullptr; }
    virtual std::unique_ptr<Step> eltwise(const EltwiseOp&, const Constants&, PackCache&) const { return nullptr; }
    virtual std::unique_ptr<Step> resize(const ResizeOp&, const Constants&, PackCache&) const { return nullptr; }
    virtual std::unique_ptr<Step> bf16(const Bf16ConvOp&, const Constants&, PackCache&) const { return nullptr; }
    virtual std::unique_ptr<Step> bf16(const Bf16PoolOp&, const Constants&, PackCache&) const { return nullptr; }
    virtual std::unique_ptr<Step> bf16(const Bf16EltwiseOp&, const Constants&, PackCache&) const { return nullptr; }
    virtual std::unique_ptr<Step> bf16(const Bf16ResizeOp&, const Constants&, PackCache&) const { return nullptr; }
};

const Engine& avx2_engine();    ///< x86-64 only, as avx512_engine()
const Engine& avx512_engine();  ///< x86-64 only
/// The engine of a level that this processor executes; null: everything is left to the portable one.
const Engine* engine_of(Level level);

/// Copies for LOAD, STORE and COPY, and LOAD_FOLD; the same at every level (move.cpp).
std::unique_ptr<Step> make_transfer(const TransferOp& op);
std::unique_ptr<Step> make_fold(const FoldOp& op, std::size_t source_bytes);

}  // namespace npuforge::sim
