// A board without a board: runs npu_top, the HLS code itself, behind a register file and a memory that are plain mapped
// files, as `uio` would find them behind its nodes. Ends when its parent does.
//
//   npu_stand_in REGISTERS MEMORY PHYSICAL_ADDRESS [isa=N] [hang=N] [wrong=N] [chain=1] [interrupt=FD]
//
// isa: the version it says it has. hang: jobs from the N-th on (0 is the first) never end. wrong: from the N-th on an
// unknown status code. chain: it is idle only after ap_continue. interrupt: descriptor that gets a word for each
// finished job, once after each word read from it, as uio_pdrv_genirq masks and unmasks.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "npu_top.hpp"

namespace {

enum Register {
    CONTROL = 0x00,
    GIE = 0x04,
    IER = 0x08,
    ISR = 0x0c,
    BIN = 0x10,
    BIN_BYTES = 0x1c,
    POOL = 0x24,
    POOL_BYTES = 0x30,
    INSTRUCTION_ADDR = 0x38,
    COUNT = 0x40,
    STATUS = 0x50
};
constexpr std::uint32_t START = 1, DONE_IDLE_READY = 0xe, IDLE = 4, DONE = 2, CONTINUE = 0x10;

struct Mapped {
    std::uint8_t* data;
    std::uint64_t size;
};

Mapped map(const char* path) {
    const int file = ::open(path, O_RDWR);
    struct stat found{};
    if (file < 0 || ::fstat(file, &found) != 0) std::exit(2);
    void* data = ::mmap(nullptr, static_cast<std::size_t>(found.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) std::exit(2);
    return {static_cast<std::uint8_t*>(data), static_cast<std::uint64_t>(found.st_size)};
}

class Board {
  public:
    Board(Mapped registers, Mapped memory, std::uint64_t physical)
        : registers_(registers), memory_(memory), physical_(physical) {}

    std::uint32_t read(unsigned offset) const { return *at(offset); }
    void write(unsigned offset, std::uint32_t value) const { *at(offset) = value; }

    /// Where the bus finds `bytes` at the address in `offset`; nothing is there: the process ends, the job never does.
    std::int8_t* behind(unsigned offset, std::uint32_t bytes) const {
        const std::uint64_t address = read(offset) | static_cast<std::uint64_t>(read(offset + 4)) << 32;
        if (address < physical_ || address - physical_ > memory_.size || bytes > memory_.size - (address - physical_)) {
            std::fprintf(stderr, "bus error at %llx\n", static_cast<unsigned long long>(address));
            std::exit(3);
        }
        return reinterpret_cast<std::int8_t*>(memory_.data + (address - physical_));
    }

    void run(std::uint32_t status[4]) const {
        const std::uint32_t bin_bytes = read(BIN_BYTES), pool_bytes = read(POOL_BYTES);
        npu_top(behind(BIN, bin_bytes), bin_bytes, behind(POOL, pool_bytes), pool_bytes, read(INSTRUCTION_ADDR),
                read(COUNT), status);
    }

  private:
    volatile std::uint32_t* at(unsigned offset) const {
        return reinterpret_cast<volatile std::uint32_t*>(registers_.data + offset);
    }
    Mapped registers_, memory_;
    std::uint64_t physical_;
};

long option(int count, char** words, const char* name, long otherwise) {
    for (int i = 4; i < count; ++i)
        if (std::strncmp(words[i], name, std::strlen(name)) == 0)
            return std::strtol(words[i] + std::strlen(name), nullptr, 0);
    return otherwise;
}

}  // namespace

int main(int count, char** words) {
    if (count < 4) return 2;
    const Board board(map(words[1]), map(words[2]), std::strtoull(words[3], nullptr, 0));
    const long isa = option(count, words, "isa=", -1), hang = option(count, words, "hang=", -1);
    const long wrong = option(count, words, "wrong=", -1);
    const bool chain = option(count, words, "chain=", 0) != 0;
    const int interrupt = static_cast<int>(option(count, words, "interrupt=", -1));
    if (interrupt >= 0) ::fcntl(interrupt, F_SETFL, O_NONBLOCK);
    const pid_t parent = ::getppid();
    bool unmasked = false;
    std::uint32_t events = 0;
    board.write(CONTROL, IDLE);
    std::puts("ready");
    std::fflush(stdout);
    for (long job = 0; ::getppid() == parent;) {
        std::uint32_t word = 0;
        if (interrupt >= 0 && ::read(interrupt, &word, sizeof word) == sizeof word) unmasked = word != 0;
        if (unmasked && (board.read(ISR) & board.read(IER) & 1u) != 0 && (board.read(GIE) & 1u) != 0) {
            unmasked = false;
            ++events;
            if (::write(interrupt, &events, sizeof events) != sizeof events) return 4;
            board.write(ISR, 0);
        }
        if (chain && (board.read(CONTROL) & CONTINUE) != 0) board.write(CONTROL, IDLE);
        if ((board.read(CONTROL) & START) == 0) {
            ::usleep(50);
            continue;
        }
        board.write(CONTROL, 0);
        __sync_synchronize();
        if (hang >= 0 && job >= hang) {
            while (::getppid() == parent) ::usleep(1000);
            return 0;
        }
        std::uint32_t status[4] = {};
        board.run(status);
        if (isa >= 0) status[3] = static_cast<std::uint32_t>(isa);
        if (wrong >= 0 && job >= wrong) status[0] = 0x55;
        for (unsigned i = 0; i < 4; ++i) board.write(STATUS + 4 * i, status[i]);
        if ((board.read(IER) & 1u) != 0) board.write(ISR, 1);
        __sync_synchronize();
        board.write(CONTROL, chain ? DONE : DONE_IDLE_READY);
        ++job;
    }
    return 0;
}
