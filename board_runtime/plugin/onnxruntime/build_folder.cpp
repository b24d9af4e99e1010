// See build_folder.hpp.
#include "build_folder.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "npuforge/device.hpp"
#include "npuforge/json.hpp"
#include "npuforge/sha256.hpp"

namespace npuforge::ort {
namespace {

std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf()))
        throw FormatError(path + ": cannot be read; expected a folder that `npuforge compile` wrote");
    return text.str();
}

std::string shortened(const std::string& digest) { return digest.substr(0, 16) + "…"; }

}  // namespace

BuildFolder::BuildFolder(std::string folder) : folder_(std::move(folder)) {
    const std::string where = folder_ + "/manifest.json";
    const json::Value manifest = json::parse(text_of(where), where);
    const auto digest = [&](const json::Value& entry, const std::string& at) {
        return entry.at("sha256", at).as_string(at + ".sha256");
    };
    if (const json::Value* target = manifest.find("target"))
        throw FormatError(folder_ + ": a build for " + target->as_string(where + ".target") +
                          ", which runs with `npuforge run --device dpu` or on the vendor's runtime; expected one for "
                          "npuforge's own NPU, of `npuforge compile` without --target");
    const json::Value& files = manifest.at("files", where);
    const std::string expected = digest(files.at("model.bin", where + ".files"), where + ".files.model.bin");
    if (sha256_of_file(bin()) != expected)
        throw FormatError(bin() + ": sha256 expected " + shortened(expected) +
                          " as manifest.json says, found another; the file was changed or is damaged, compile again");
    if (!manifest.find("model"))
        throw FormatError(where +
                          ": it does not say which model was compiled; an older npuforge wrote it, compile again");
    const json::Value& model = manifest.at("model", where);
    model_ = model.at("file", where + ".model").as_string(where + ".model.file");
    digests_ = {digest(model, where + ".model")};
    if (const json::Value* reference = files.find("reference.onnx"))
        digests_.push_back(digest(*reference, where + ".files.reference.onnx"));
    if (const json::Value* external = model.find("external"))
        for (const auto& [name, value] : external->as_object(where + ".model.external"))
            external_.emplace(name, value.as_string(where + ".model.external"));
}

void BuildFolder::check_model(const std::string& path) const {
    const std::string digest = sha256_of_file(path);
    check_digest(digest, "model " + path);
    if (digest != digests_.front()) return;  // reference.onnx holds its weights
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
    for (const auto& [name, expected] : external_)
        if (sha256_of_file(folder + name) != expected)
            throw ArgumentError(folder + name + ": these weights are not those that " + folder_ +
                                " was compiled from; compile again");
}

void BuildFolder::check_digest(const std::string& digest, const std::string& what) const {
    if (std::find(digests_.begin(), digests_.end(), digest) == digests_.end())
        throw ArgumentError(what + " is not the model that " + folder_ + " was compiled from: sha256 expected " +
                            shortened(digests_.front()) + " (" + model_ + "), found " + shortened(digest) +
                            "; compile this model, or give its own build");
}

}  // namespace npuforge::ort
