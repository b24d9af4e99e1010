// Random damage of a `.bin`: header and table, the JSON page, every section, lengths; mostly with a right CRC, so that
// the rules behind it are reached. Loading, preparing and running must end in an npuforge::Error or in success, never
// in a crash.
//
// damage MODEL.bin ROUNDS [SEED]: prints how many of each kind were refused. Meant for the sanitizers.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "npuforge/cpu_plan.hpp"
#include "npuforge/program.hpp"
#include "npuforge/session.hpp"

using namespace npuforge;  // NOLINT

namespace {

using Bytes = std::vector<std::uint8_t>;
enum Kind { kHeader, kMeta, kSections, kLength, kKinds };
constexpr const char* kNames[kKinds] = {"header", "meta", "sections", "length"};

class Damage {
  public:
    Damage(const BinFile& file, unsigned seed) : file_(file), random_(seed) {}

    Bytes of(Kind kind) {
        Bytes bytes(file_.data(), file_.data() + file_.size());
        const int changes = 1 + static_cast<int>(below(4));
        for (int i = 0; i < changes; ++i) change(kind, bytes);
        if (kind == kLength) {
            bytes.resize(below(8) == 0 ? bytes.size() + 1 + below(100) : below(bytes.size()));
            if (bytes.size() < 20) return bytes;
            put(bytes, 12, static_cast<std::uint32_t>(bytes.size()));
        }
        if (below(16) != 0) put(bytes, bytes.size() - 4, crc32(bytes.data(), bytes.size() - 4));
        return bytes;
    }

  private:
    std::size_t below(std::size_t end) { return random_() % end; }
    std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }
    static void put(Bytes& bytes, std::size_t at, std::uint32_t value) {
        for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
    }

    void change(Kind kind, Bytes& bytes) {
        static const std::string text = "0123456789\"[]{},:-e.tnfa \\u";
        if (kind == kHeader) {
            const std::size_t end = 16 + 44 * file_.sections().size();
            static const std::uint32_t values[] = {0,   1,          63,         64,         255,
                                                   256, 0x7fffffff, 0x80000000, 0xffffffc0, 0xffffffff};
            if (below(2) == 0)
                put(bytes, 4 * below(end / 4), values[below(std::size(values))]);
            else
                bytes[below(end)] = byte();
        } else if (kind == kMeta) {
            const Section& meta = file_.at("meta");
            bytes[meta.offset + below(meta.size)] =
                below(8) == 0 ? byte() : static_cast<std::uint8_t>(text[below(text.size())]);
        } else if (kind == kSections) {
            const Section& section = file_.sections()[below(file_.sections().size())];
            if (section.name != "meta" && section.size != 0) bytes[section.offset + below(section.size)] = byte();
        }
    }

    const BinFile& file_;
    std::mt19937 random_;
};

void run_once(Session& session) {
    const Program& program = session.program();
    std::vector<Bytes> memory;
    std::vector<InputBuffer> inputs;
    for (const std::string& name : program.inputs()) {
        InputBuffer buffer;
        buffer.shape = cpu::Shape(program.tensor(name).application_shape());
        memory.emplace_back(4 * static_cast<std::size_t>(buffer.shape.count()));
        buffer.data = memory.back().data();
        inputs.push_back(buffer);
    }
    std::vector<OutputBuffer> outputs(program.outputs().size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        memory.emplace_back(session.output_prototype(i).bytes());
        outputs[i].data = memory.back().data();
        outputs[i].capacity = memory.back().size();
    }
    session.run(inputs.data(), inputs.size(), outputs.data(), outputs.size());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: damage MODEL.bin ROUNDS [SEED]\n");
        return 2;
    }
    try {
        const auto file = BinFile::read(argv[1]);
        Damage damage(*file, argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1U);
        int tried[kKinds] = {}, refused[kKinds] = {};
        const int rounds = std::atoi(argv[2]);
        for (int round = 0; round < rounds; ++round) {
            const Kind kind = static_cast<Kind>(round % kKinds);
            ++tried[kind];
            try {
                const Bytes bytes = damage.of(kind);
                const auto program = Program::parse(BinFile::parse(bytes.data(), bytes.size()));
                const CpuPlan plan(program);
                if (kind == kSections || round % 16 == kMeta) {
                    Session session(program, SessionOptions());
                    run_once(session);
                }
            } catch (const Error&) {
                ++refused[kind];
            }
        }
        bool reached = true;  // every kind was refused at times
        for (int kind = 0; kind < kKinds; ++kind) {
            std::printf("%s: %d of %d refused\n", kNames[kind], refused[kind], tried[kind]);
            reached = reached && refused[kind] > tried[kind] / 50;
        }
        return reached ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
