// Random damage of a `.bin` with a right CRC: loading and preparing it must end in an npuforge::Error or in success,
// never in a crash.
//
// damage MODEL.bin ROUNDS [SEED]: prints how many were refused. Meant for the sanitizers.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "npuforge/cpu_plan.hpp"
#include "npuforge/program.hpp"
#include "npuforge/session.hpp"

using namespace npuforge;  // NOLINT

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: damage MODEL.bin ROUNDS [SEED]\n");
        return 2;
    }
    try {
        const auto file = BinFile::read(argv[1]);
        const std::vector<std::uint8_t> good(file->data(), file->data() + file->size());
        const Section meta = file->at("meta");
        std::mt19937 random(argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1u);
        static const std::string kText = "0123456789\"[]{},:-e.tnfa \\u";
        int refused = 0;
        const int rounds = std::atoi(argv[2]);
        for (int round = 0; round < rounds; ++round) {
            std::vector<std::uint8_t> bytes = good;
            const int changes = 1 + static_cast<int>(random() % 4);
            for (int i = 0; i < changes; ++i) {
                if (random() % 4 == 0)
                    bytes[random() % (16 + 44 * file->sections().size())] = static_cast<std::uint8_t>(random());
                else if (random() % 8 == 0)
                    bytes[meta.offset + random() % meta.size] = static_cast<std::uint8_t>(random());
                else
                    bytes[meta.offset + random() % meta.size] =
                        static_cast<std::uint8_t>(kText[random() % kText.size()]);
            }
            const std::size_t end = bytes.size() - 4;
            const std::uint32_t crc = crc32(bytes.data(), end);
            for (std::size_t i = 0; i < 4; ++i) bytes[end + i] = static_cast<std::uint8_t>(crc >> (8 * i));
            try {
                const auto program = Program::parse(BinFile::parse(bytes.data(), bytes.size()));
                const CpuPlan plan(program);
                if (round % 16 == 0) Session(program, SessionOptions());
            } catch (const Error&) {
                ++refused;
            }
        }
        std::printf("%d of %d refused\n", refused, rounds);
        return refused > rounds / 4 ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
