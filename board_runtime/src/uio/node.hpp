// Files of the kernel: device nodes that are opened, locked and mapped, and one-line attributes in sysfs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace npuforge::uio {

/// An open file that closes itself. Errors are DeviceErrors that name the path.
class File {
  public:
    File() = default;
    /// `flags` of open(2); O_CLOEXEC is added.
    File(const std::string& path, int flags);
    File(File&& other) noexcept { *this = static_cast<File&&>(other); }
    File& operator=(File&& other) noexcept;
    ~File();

    int descriptor() const { return descriptor_; }
    const std::string& path() const { return path_; }
    bool is_open() const { return descriptor_ >= 0; }
    /// Until this object ends. DeviceError where another session or process has it.
    void lock() const;
    /// Writes `value` and a line end at the start, as a sysfs attribute takes it.
    void write_number(std::uint64_t value) const;
    /// DeviceError where the node is a plain file (a stand-in) of fewer bytes.
    void expect_bytes(std::size_t bytes) const;

  private:
    std::string path_;
    int descriptor_ = -1;
};

/// A shared, writable mapping of the first bytes of a node.
class Mapping {
  public:
    Mapping() = default;
    Mapping(const File& file, std::size_t bytes);
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();

    std::uint8_t* data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;
};

/// The first line of the attribute `folder`/`name`. DeviceError where it cannot be read.
std::string attribute(const std::string& folder, const std::string& name);
/// The same as a number, decimal or 0x….
std::uint64_t number_attribute(const std::string& folder, const std::string& name);

}  // namespace npuforge::uio
