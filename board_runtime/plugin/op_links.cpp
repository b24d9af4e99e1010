// npuforge-op-links LIBRARY: makes the names by which the vendor's CPU task looks for operators,
// libvart_op_imp_<type>.so beside LIBRARY, as links to it. Owns the list of names only; what the library can do is
// XirOp's.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "xir_op.hpp"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: npuforge-op-links LIBRARY\n");
        return 2;
    }
    try {
        const std::filesystem::path library = argv[1];
        for (std::string type : npuforge::plugin::XirOp::plug_in_types()) {
            for (char& letter : type) {
                if (letter == ':' || letter == '/' || letter == '\\') letter = '_';
            }
            const auto link = library.parent_path() / ("libvart_op_imp_" + type + ".so");
            std::filesystem::remove(link);
            std::filesystem::create_symlink(library.filename(), link);
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "npuforge-op-links: error: %s\n", error.what());
        return 1;
    }
}
