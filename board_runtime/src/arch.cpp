// The arch of a `.bin`: its fingerprint is recomputed, and its parameters are compared with the arch the caller's
// hardware has.
#include <set>

#include "npu_isa.hpp"
#include "npuforge/program.hpp"
#include "npuforge/sha256.hpp"

namespace npuforge {
namespace {

std::string fingerprint_of(const json::Value& arch) {
    const std::string text = arch.text() + "|isa" + std::to_string(isa::ISA_VERSION);
    return sha256(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()).substr(0, 16);
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
