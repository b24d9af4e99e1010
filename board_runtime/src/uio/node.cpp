// open, flock, mmap and sysfs with typed errors.
#include "node.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "npuforge/device.hpp"

namespace npuforge::uio {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, const std::string& remedy) {
    throw DeviceError("device uio: " + path + " " + what + " (" + std::strerror(errno) + "); " + remedy);
}

}  // namespace

File::File(const std::string& path, int flags) : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (descriptor_ >= 0) return;
    if (errno == EACCES || errno == EPERM)
        fail(path, "cannot be opened", "run as root, or give yourself the node with a udev rule (docs/board.md)");
    fail(path, "cannot be opened", "load the overlay and the driver u-dma-buf, and correct the board's description");
}

File& File::operator=(File&& other) noexcept {
    path_.swap(other.path_);
    const int descriptor = descriptor_;
    descriptor_ = other.descriptor_;
    other.descriptor_ = descriptor;
    return *this;
}

File::~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void File::lock() const {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    if (errno == EWOULDBLOCK)
        throw DeviceError(
            "device uio: " + path_ +
            " is in use by another session or process, and one at a time drives the hardware; end that one");
    fail(path_, "cannot be locked", "give a node that flock(2) takes");
}

void File::write_number(std::uint64_t value) const {
    const std::string text = std::to_string(value) + "\n";
    if (::pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
        fail(path_, "cannot be written", "expected an attribute of u-dma-buf");
}

void File::expect_bytes(std::size_t bytes) const {
    struct stat found{};
    if (::fstat(descriptor_, &found) != 0) fail(path_, "cannot be asked for its size", "expected a device node");
    if (S_ISREG(found.st_mode) && static_cast<std::size_t>(found.st_size) < bytes)
        throw DeviceError("device uio: " + path_ + ": expected " + std::to_string(bytes) + " bytes or more, found " +
                          std::to_string(found.st_size));
}

Mapping::Mapping(const File& file, std::size_t bytes) {
    file.expect_bytes(bytes);
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
    if (data == MAP_FAILED)
        fail(file.path(), "cannot be mapped", "expected a node with " + std::to_string(bytes) + " bytes");
    data_ = static_cast<std::uint8_t*>(data);
    size_ = bytes;
}

Mapping::~Mapping() {
    if (data_) ::munmap(data_, size_);
}

std::string attribute(const std::string& folder, const std::string& name) {
    const std::string path = folder + "/" + name;
    errno = 0;
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line))
        throw DeviceError("device uio: " + path + ": cannot be read (" +
                          (errno ? std::strerror(errno) : "it is empty") +
                          "); load the overlay and the driver u-dma-buf, and correct the board's description");
    return line;
}

std::uint64_t number_attribute(const std::string& folder, const std::string& name) {
    const std::string text = attribute(folder, name);
    std::size_t used = 0;
    std::uint64_t value = 0;
    try {
        value = std::stoull(text, &used, 0);
    } catch (const std::exception&) {
        used = 0;
    }
    if (used == 0 || used != text.size())
        throw DeviceError("device uio: " + folder + "/" + name + ": expected a number, found '" + text + "'");
    return value;
}

}  // namespace npuforge::uio
