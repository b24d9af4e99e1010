// A folder that `npuforge compile` wrote, as the execution provider needs it: which model it was made from, its `.bin`.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace npuforge::ort {

/// Construction reads manifest.json and checks that model.bin is the one it names; FormatError otherwise.
class BuildFolder {
  public:
    explicit BuildFolder(std::string folder);

    const std::string& folder() const { return folder_; }
    std::string bin() const { return folder_ + "/model.bin"; }
    /// Throws ArgumentError where a model file, and the files its weights are in, are not those of the build.
    void check_model(const std::string& path) const;
    /// The same by the SHA-256 of the model's bytes; models with weights in other files need a path.
    void check_digest(const std::string& digest, const std::string& what) const;

  private:
    std::string folder_;
    std::string model_;                            ///< the file that was compiled, without its path
    std::vector<std::string> digests_;             ///< of that file, and of reference.onnx
    std::map<std::string, std::string> external_;  ///< files with weights, relative to the model: their digests
};

}  // namespace npuforge::ort
