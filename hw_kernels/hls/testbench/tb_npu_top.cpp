// Testbench of npu_top for any C++ compiler and for `csim_design`: one program (load, 1x1 convolution with LeakyReLU,
// store) against a golden result computed here with plain loops. Prints the number of finished executions; returns 0
// only if all are right.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "npu_isa.hpp"
#include "npu_top.hpp"

namespace {

constexpr int SIDE = 5, LANES = 16, PIXELS = SIDE * SIDE;
constexpr std::uint32_t DATA_BYTES = 640, X = 0, W = 4096, OUT = 8192;
constexpr int SHIFT = 20, M_POSITIVE = 30000, M_NEGATIVE = 3000, ZERO = -7;

std::uint32_t state = 12345;
int noise(int low, int high) {
    state = state * 1664525u + 1013904223u;
    return low + static_cast<int>((state >> 8) % static_cast<std::uint32_t>(high - low + 1));
}

struct Words {
    std::uint32_t w[npuforge::isa::INSTRUCTION_WORDS] = {};
    Words& set(int word, std::uint32_t value) {
        w[word] |= value;
        return *this;
    }
};

Words transfer(std::uint32_t opcode, std::uint32_t tokens, std::uint32_t region, std::uint32_t ddr, std::uint32_t sram,
               std::uint32_t bytes) {
    return Words().set(0, opcode | tokens | region << 24).set(2, ddr).set(5, 1u | 1u << 16).set(6, bytes).set(11, sram);
}

template <class T>
void put(std::vector<std::int8_t>& image, std::size_t offset, const T* data, std::size_t count) {
    std::memcpy(image.data() + offset, data, count * sizeof(T));
}

int run_once() {
    std::int8_t weight[LANES][LANES], input[PIXELS][LANES];
    std::int32_t bias[LANES];
    std::vector<std::int8_t> image(DATA_BYTES + 5 * npuforge::isa::INSTRUCTION_BYTES), pool(2 * PIXELS * LANES);
    for (auto& row : weight)
        for (auto& v : row) v = static_cast<std::int8_t>(noise(-127, 127));
    for (auto& pixel : input)
        for (auto& v : pixel) v = static_cast<std::int8_t>(noise(-128, 127));
    for (auto& v : bias) v = noise(-30000, 30000);
    put(image, 0, &weight[0][0], sizeof weight);
    put(image, 256, bias, LANES);
    for (int lane = 0; lane < LANES; ++lane) {
        const std::int16_t factors[2] = {M_POSITIVE, M_NEGATIVE};
        const std::int8_t rest[4] = {SHIFT, ZERO, -128, 127};
        put(image, 320 + 8 * lane, factors, 2);
        put(image, 324 + 8 * lane, rest, 4);
    }
    put(pool, 0, &input[0][0], sizeof input);

    Words program[5];
    const std::uint32_t bytes = PIXELS * LANES, row = SIDE * LANES;
    program[0] = transfer(0x10, 0, 0, 0, W, DATA_BYTES);
    program[1] = transfer(0x10, 1u << 13, 1, 0, X, bytes);
    program[2] = Words()
                     .set(0, 0x20 | 1u << 8 | 1u << 15)
                     .set(2, X)
                     .set(3, row)
                     .set(4, LANES)
                     .set(5, SIDE | SIDE << 16)
                     .set(6, 1u | 1u << 16)
                     .set(7, 1u | 1u << 16)
                     .set(8, 0x01010101u)
                     .set(10, SIDE | SIDE << 16)
                     .set(11, OUT)
                     .set(12, row)
                     .set(13, LANES)
                     .set(14, W)
                     .set(15, W + 256)
                     .set(16, W + 320)
                     .set(18, W + 448);
    program[3] = transfer(0x40, 1u << 9, 1, bytes, OUT, bytes);
    for (int k = 0; k < 5; ++k) put(image, DATA_BYTES + 128 * k, program[k].w, npuforge::isa::INSTRUCTION_WORDS);

    std::uint32_t status[4] = {99, 99, 99, 99};
    npu_top(image.data(), static_cast<std::uint32_t>(image.size()), pool.data(),
            static_cast<std::uint32_t>(pool.size()), DATA_BYTES, 5, status);
    if (status[0] != 0 || status[3] != npuforge::isa::ISA_VERSION) {
        std::printf("refused: code %u field %u instruction %u\n", status[0], status[1], status[2]);
        return 1;
    }
    int wrong = 0;
    for (int pixel = 0; pixel < PIXELS; ++pixel) {
        for (int o = 0; o < LANES; ++o) {
            long long acc = bias[o];
            for (int i = 0; i < LANES; ++i) acc += weight[o][i] * input[pixel][i];
            long long y = ((acc * (acc < 0 ? M_NEGATIVE : M_POSITIVE) + (1LL << (SHIFT - 1))) >> SHIFT) + ZERO;
            y = y < -128 ? -128 : y > 127 ? 127 : y;
            wrong += pool[bytes + pixel * LANES + o] != y;
        }
    }
    return wrong;
}

}  // namespace

int main() {
    constexpr int EXECUTIONS = 20;
    int finished = 0;
    for (int k = 0; k < EXECUTIONS; ++k) finished += run_once() == 0;
    std::printf("%d of %d executions right\n", finished, EXECUTIONS);
    return finished == EXECUTIONS ? 0 : 1;
}
