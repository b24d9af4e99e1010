// The arch of a `.bin`: its fingerprint is recomputed, and its parameters are compared with the arch the caller's
// hardware has.
#include <array>
#include <set>

#include "npu_isa.hpp"
#include "npuforge/program.hpp"

namespace npuforge {
namespace {

// SHA-256 (FIPS 180-4), for short texts.
class Sha256 {
  public:
    static std::string hex(std::string text) {
        const std::uint64_t bits = static_cast<std::uint64_t>(text.size()) * 8;
        text += static_cast<char>(0x80);
        while (text.size() % 64 != 56) text += '\0';
        for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift & 0xFF);
        State h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
        for (std::size_t at = 0; at < text.size(); at += 64) block(h, text.data() + at);
        static constexpr char kDigits[] = "0123456789abcdef";
        std::string out;
        for (const std::uint32_t value : h)
            for (int shift = 28; shift >= 0; shift -= 4) out += kDigits[value >> shift & 0xF];
        return out;
    }

  private:
    using State = std::array<std::uint32_t, 8>;
    static std::uint32_t rotate(std::uint32_t x, int n) { return x >> n | x << (32 - n); }

    static void block(State& h, const char* bytes) {
        static constexpr std::uint32_t kRound[64] = {
            0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
            0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
            0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
            0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
            0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
            0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
            0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
            0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
        std::array<std::uint32_t, 64> w;
        for (std::size_t i = 0; i < 16; ++i) {
            w[i] = 0;
            for (std::size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | static_cast<unsigned char>(bytes[4 * i + j]);
        }
        for (std::size_t i = 16; i < 64; ++i) {
            const std::uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
            const std::uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        State v = h;
        for (std::size_t i = 0; i < 64; ++i) {
            const std::uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
            const std::uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + kRound[i] + w[i];
            const std::uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
            const std::uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
        }
        for (std::size_t i = 0; i < 8; ++i) h[i] += v[i];
    }
};

std::string fingerprint_of(const json::Value& arch) {
    return Sha256::hex(arch.text() + "|isa" + std::to_string(isa::ISA_VERSION)).substr(0, 16);
}

std::string member_text(const json::Object& object, const std::string& key) {
    const auto it = object.find(key);
    return it == object.end() ? "absent" : it->second.text();
}

}  // namespace

void Program::check_arch(const std::string& expected_arch) const {
    const json::Value& arch = meta_.at("arch", "meta");
    const std::string own = fingerprint_of(arch);
    if (own != fingerprint_)
        throw ArchError("meta.fingerprint: " + fingerprint_ +
                        " was written for another instruction set or arch; this runtime (ISA version " +
                        std::to_string(isa::ISA_VERSION) + ") computes " + own + "; recompile with this npuforge");
    if (expected_arch.empty()) return;
    const json::Value expected = json::parse(expected_arch, "expected arch");
    const auto& a = expected.as_object("expected arch");
    const auto& b = arch.as_object("meta.arch");
    std::set<std::string> keys;
    for (const auto& [key, value] : a) keys.insert(key);
    for (const auto& [key, value] : b) keys.insert(key);
    std::string differences;
    for (const std::string& key : keys) {
        const std::string want = member_text(a, key), have = member_text(b, key);
        if (want != have)
            differences += (differences.empty() ? "" : ", ") + key + " expected " + want + ", found " + have;
    }
    if (!differences.empty())
        throw ArchError("compiled for another arch: " + differences + "; recompile with --arch for this hardware");
}

}  // namespace npuforge
