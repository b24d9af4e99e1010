// A model ready to run: device for the NPU partitions, C++ for the CPU partitions, one arena per concurrent request.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "npuforge/cpu_plan.hpp"
#include "npuforge/device.hpp"
#include "npuforge/memory.hpp"
#include "npuforge/metrics.hpp"
#include "npuforge/program.hpp"

namespace npuforge {

/// What a buffer with room for the most rows holds where the data gave none. kPublic: -1, of uint8 elements 0, of bool
/// ones kNoTruth. kInner, where a network reads on: a value that no result has (of int8 and uint8 there is none: as
/// kPublic).
enum class Filling { kPublic, kInner };
constexpr std::uint8_t kNoTruth = 0xFF;

/// What the application hands in. A network input: float32 in the ONNX shape, or for images uint8 N, H, W, C. With
/// `nhwc`, float32 as N, H, W, C.
struct InputBuffer {
    const void* data = nullptr;
    cpu::Type type = cpu::Type::kFloat32;
    cpu::Shape shape;
    bool nhwc = false;
    Filling filling = Filling::kPublic;  ///< of one partition's rows that the data decide
};

/// Where a result goes. `type` and `shape` are set by the run (shapes of in-graph NMS depend on the data).
struct OutputBuffer {
    void* data = nullptr;
    std::size_t capacity = 0;  ///< bytes
    cpu::Type type = cpu::Type::kFloat32;
    cpu::Shape shape;
    bool nhwc = false;  ///< write feature maps as N, H, W, C
    Filling filling = Filling::kPublic;
};

/// One layer's output as the device holds it, logical channels, H x W x C.
struct TraceTensor {
    const LayerMeta* layer = nullptr;
    std::vector<std::int8_t> data;
    std::size_t pad_lane_errors = 0;  ///< bytes of pad lanes that are not 0
};

/// One span of a profile: times from the start of the run.
struct ProfileEvent {
    std::string name, category;
    std::int64_t start_ns = 0, duration_ns = 0;
};

struct RunOptions {
    std::vector<TraceTensor>* trace = nullptr;
    std::vector<ProfileEvent>* profile = nullptr;
};

struct SessionOptions {
    std::string device = "sim";  ///< sim, csim or uio
    int threads = 1;             ///< of the sim device
    std::string level =
        "auto";                 ///< instruction set of the sim device: auto, scalar, avx2 or avx512 (all the same bits)
    std::string expected_arch;  ///< JSON text; empty accepts the arch of the file
    std::string board;          ///< path of the board's description, for uio
};

class Session {
  public:
    static std::shared_ptr<Session> open(const std::string& path, const SessionOptions& options = {});
    Session(std::shared_ptr<const Program> program, const SessionOptions& options);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    /// Waits for runs in flight.
    ~Session();

    const Program& program() const { return *program_; }
    const std::string& device_name() const { return device_name_; }
    /// Whether RunOptions::trace gets every layer; else only the tensors that leave an NPU partition.
    bool traces_layers() const { return device_->traces(); }
    const CpuPlan& cpu_plan() const { return plan_; }
    Metrics& metrics() { return metrics_; }
    std::string prometheus() const;

    /// Type and (largest) shape of a network output.
    const cpu::Tensor& output_prototype(std::size_t index) const { return output_prototypes_[index]; }

    /// One inference. Thread-safe; allocates nothing once as many contexts exist as runs are in flight (without
    /// options).
    void run(const InputBuffer* inputs, std::size_t input_count, OutputBuffer* outputs, std::size_t output_count,
             const RunOptions& options = {});

    /// Creates contexts ahead of the first `count` concurrent runs.
    void warm_up(std::size_t count);

    /// One partition alone, for subgraph runners. Inputs and outputs of an NPU partition as float32 or int8, those of a
    /// CPU partition in the tensors' own types.
    void run_partition(std::size_t partition, const InputBuffer* inputs, std::size_t input_count, OutputBuffer* outputs,
                       std::size_t output_count);

  private:
    struct Context;
    class Lease;

    std::unique_ptr<Context> create_context() const;
    std::unique_ptr<Context> acquire();
    void release(std::unique_ptr<Context> context);
    void bind_input(Context& context, const std::string& name, const InputBuffer& input) const;
    void store_npu_input(Context& context, const std::string& name) const;
    void load_npu_output(Context& context, const std::string& name) const;
    void run_npu(Context& context, std::size_t partition, const RunOptions& options) const;
    void store_partition_input(Context& context, const std::string& name, const InputBuffer& input) const;
    void copy_partition_input(Context& context, const std::string& name, const InputBuffer& input) const;
    void load_partition_output(Context& context, const std::string& name, OutputBuffer& output) const;
    void write_output(Context& context, const std::string& name, OutputBuffer& output) const;
    TraceHook trace_hook(std::vector<TraceTensor>& trace) const;
    void trace_outputs(const Context& context, std::size_t partition, std::vector<TraceTensor>& trace) const;

    std::shared_ptr<const Program> program_;
    std::string device_name_;
    CpuPlan plan_;
    std::unique_ptr<Device> device_;
    std::set<std::string> on_npu_;        ///< tensors that NPU partitions produce
    std::vector<std::size_t> npu_index_;  ///< partition -> NPU partition
    std::vector<cpu::Tensor> output_prototypes_;
    struct TraceEntry {
        const LayerMeta* layer;
        const TracePiece* piece;
    };
    std::vector<TraceEntry> trace_points_;  ///< by instruction
    Metrics metrics_;

    std::mutex mutex_;
    std::condition_variable idle_;
    std::vector<std::unique_ptr<Context>> free_;
    std::size_t created_ = 0;
    std::size_t in_flight_ = 0;
};

}  // namespace npuforge
