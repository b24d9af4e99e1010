// A loaded, checked `.bin` (DESIGN section 6): the container, the meta data as C++ structures, and what a device needs
// of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "npuforge/device.hpp"
#include "npuforge/json.hpp"

namespace npuforge {

/// Element types of sections; the value is what the file holds.
enum class SectionType : std::uint32_t {
    kFloat32 = 1,
    kInt8 = 2,
    kUint8 = 3,
    kInt32 = 4,
    kBf16 = 5,
    kUint16 = 6,
    kInstructions = 7,
    kJson = 8,
    kInt16 = 9,
};

struct Section {
    std::string name;
    SectionType type = SectionType::kUint8;
    std::size_t offset = 0;  ///< in the file
    std::size_t size = 0;    ///< bytes
};

/// The whole file in 64-byte aligned memory and its section table. Construction checks magic, version, sizes, names,
/// types, alignment, bounds, overlaps, zero padding and CRC-32, in this order; each failure is a FormatError of its own
/// with section and offset.
class BinFile {
  public:
    static std::shared_ptr<const BinFile> read(const std::string& path);
    static std::shared_ptr<const BinFile> parse(const std::uint8_t* bytes, std::size_t size);

    const std::uint8_t* data() const { return image_.get(); }
    std::size_t size() const { return size_; }
    const std::vector<Section>& sections() const { return sections_; }
    /// nullptr when absent.
    const Section* find(const std::string& name) const;
    const Section& at(const std::string& name) const;

  private:
    struct Free {
        void operator()(std::uint8_t* p) const;
    };
    void check();

    std::unique_ptr<std::uint8_t[], Free> image_;
    std::size_t size_ = 0;
    std::vector<Section> sections_;
    std::map<std::string, std::size_t> index_;
};

/// Where a tensor that crosses an NPU partition's border lies in the pool, and what its bytes mean.
struct NpuTensor {
    std::size_t offset = 0;
    int h = 0, w = 0, c = 0;
    std::size_t row_stride = 0, pixel_stride = 0;
    std::vector<std::int32_t> lanes;       ///< lane of every channel, distinct
    std::size_t lane_count = 0;            ///< lanes of a pixel that belong to this tensor; those of no channel hold 0
    std::vector<double> scale;             ///< per channel
    std::vector<std::int32_t> zero_point;  ///< per channel
    std::vector<double> image_mean;        ///< per channel; empty unless the tensor is an image: q = pixel - 128
    bool bf16 = false;                     ///< lanes of two bytes; scale 1, zero point 0
    bool has_fix_point = false;
    int fix_point = 0;
    bool is_image() const { return !image_mean.empty(); }
};

struct TensorMeta {
    std::string name;
    std::vector<std::int64_t> shape;  ///< as in ONNX; N, C, H, W for feature maps
    std::string dtype;
    bool nhwc = false;  ///< a network input or output whose ONNX layout is N, H, W, C
    std::unique_ptr<NpuTensor> npu;
    /// `shape` in the application's order: N, H, W, C where `nhwc`.
    std::vector<std::int64_t> application_shape() const;
    std::int64_t elements() const;
};

struct CpuNode {
    std::string name, op;
    std::vector<std::string> inputs, outputs;  ///< an empty input is an omitted optional one
    json::Value attrs, activation;
};

struct PartitionMeta {
    bool npu = false;
    std::size_t first_instruction = 0, instruction_count = 0;
    std::vector<std::string> inputs, outputs;
    std::vector<CpuNode> nodes;
};

struct ConstantMeta {
    std::string section;
    std::vector<std::int64_t> shape;
    std::string dtype;
};

/// Part of a layer's output, and the instruction right after which it can be read: rows first_row .. first_row + rows,
/// lanes first_lane .. first_lane + lane_count.
struct TracePiece {
    std::size_t after_instruction = 0;
    std::size_t address = 0;  ///< of the first row and lane
    std::size_t row_stride = 0, pixel_stride = 0;
    int first_row = 0, rows = 0;
    std::size_t first_lane = 0, lane_count = 0;
};

/// Where the output of one layer can be read. Mostly in one piece; what a convolution gives before the sum of its
/// residual stage is gone after each of its instructions, and is read in as many pieces.
struct TracePoint {
    enum class Space { kSram, kPool, kBeforeSum };  ///< kBeforeSum: TraceMemory::before_sum
    Space space = Space::kSram;
    int h = 0, w = 0;
    std::vector<std::int32_t> lanes;
    std::size_t lane_count = 0;
    std::size_t lane_bytes = 1;  ///< 2 for bf16
    std::vector<TracePiece> pieces;
};

struct LayerMeta {
    std::string id, name, op, tensor;
    std::vector<std::string> sources;
    std::size_t first_instruction = 0, last_instruction = 0;
    std::int64_t macs = 0;
    std::unique_ptr<TracePoint> trace;
};

/// A checked program. Immutable; shared by every session and device that uses it.
class Program {
  public:
    /// `expected_arch`: JSON text of the arch the caller's hardware has, empty to accept any. ArchError names the
    /// parameters that differ.
    static std::shared_ptr<const Program> load(const std::string& path, const std::string& expected_arch = "");
    static std::shared_ptr<const Program> parse(std::shared_ptr<const BinFile> file,
                                                const std::string& expected_arch = "");

    const BinFile& file() const { return *file_; }
    const json::Value& meta() const { return meta_; }
    const std::string& name() const { return name_; }
    const std::string& mode() const { return mode_; }
    const std::string& fingerprint() const { return fingerprint_; }
    std::size_t pool_size() const { return pool_size_; }
    std::size_t sram_bytes() const { return sram_bytes_; }
    const std::vector<std::string>& inputs() const { return inputs_; }
    const std::vector<std::string>& outputs() const { return outputs_; }
    const std::map<std::string, TensorMeta>& tensors() const { return tensors_; }
    const TensorMeta& tensor(const std::string& name) const;
    const std::vector<PartitionMeta>& partitions() const { return partitions_; }
    const std::map<std::string, ConstantMeta>& constants() const { return constants_; }
    const std::vector<LayerMeta>& layers() const { return layers_; }

    /// ArchError where the fingerprint is not that of the arch in the file, or names the parameters that differ from
    /// the JSON text `expected_arch` (empty: any).
    void check_arch(const std::string& expected_arch) const;

    /// What a device takes; keeps the file alive.
    static DeviceProgram device_program(const std::shared_ptr<const Program>& program);

  private:
    void parse_meta();
    void parse_tensors();
    void parse_partitions();
    void parse_constants();
    void parse_layers();
    void parse_trace(const json::Value& trace, const std::string& at, TracePoint& point) const;
    void check_dataflow() const;

    std::shared_ptr<const BinFile> file_;
    json::Value meta_;
    std::string name_, mode_, fingerprint_;
    std::size_t pool_size_ = 0, sram_bytes_ = 0, instruction_count_ = 0;
    std::vector<std::string> inputs_, outputs_;
    std::map<std::string, TensorMeta> tensors_;
    std::vector<PartitionMeta> partitions_;
    std::map<std::string, ConstantMeta> constants_;
    std::vector<LayerMeta> layers_;
};

/// CRC-32 (IEEE 802.3, as zlib's).
std::uint32_t crc32(const std::uint8_t* bytes, std::size_t size);

}  // namespace npuforge
