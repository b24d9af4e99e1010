// SHA-256 (FIPS 180-4) of files and bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace npuforge {

/// 64 lower-case hexadecimal digits.
std::string sha256(const std::uint8_t* bytes, std::size_t size);
/// Of a whole file, read in pieces; FormatError where it cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace npuforge
