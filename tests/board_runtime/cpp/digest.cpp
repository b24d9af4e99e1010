// Prints the SHA-256 of each file that is named.
#include <cstdio>
#include <exception>

#include "npuforge/sha256.hpp"

int main(int count, char** names) {
    try {
        for (int i = 1; i < count; ++i) std::printf("%s\n", npuforge::sha256_of_file(names[i]).c_str());
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
