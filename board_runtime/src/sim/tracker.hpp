// Owns what is known at load about every 16 bytes of on-chip memory: never written, computed, or a copy of given bytes
// of the `.bin`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operation.hpp"

namespace npuforge::sim {

class Tracker {
  public:
    Tracker(const std::uint8_t* image, std::size_t sram_bytes, std::vector<std::shared_ptr<const void>>& owned)
        : image_(image), granules_((sram_bytes + kGranule - 1) / kGranule, kUnwritten), owned_(owned) {}

    /// Forgets everything (start of a partition).
    void reset() { granules_.assign(granules_.size(), kUnwritten); }
    void write_computed(const View& view);
    /// A LOAD from the image.
    void write_image(const TransferOp& op);
    bool reads_unwritten(const View& view) const;

    /// The bytes at [address, address + bytes) if all of them are copies of image bytes, else null; appends their
    /// origin to `key`.
    const std::uint8_t* constant(std::uint32_t address, std::size_t bytes, std::string& key);

  private:
    static constexpr std::size_t kGranule = 16;
    static constexpr std::int64_t kUnwritten = -1, kComputed = -2;  // otherwise: offset in the image

    const std::uint8_t* image_;
    std::vector<std::int64_t> granules_;
    std::vector<std::shared_ptr<const void>>& owned_;
};

}  // namespace npuforge::sim
