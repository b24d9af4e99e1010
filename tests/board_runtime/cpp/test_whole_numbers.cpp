// Integers and truth values as float32: exact at every end of every type, refused one step beyond.
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "npuforge/whole_numbers.hpp"

namespace {

using npuforge::cpu::Type;

int wrong = 0;

void require(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("failed: %s\n", what.c_str());
    ++wrong;
}

template <typename F>
bool refused(const std::string& part, F f) {
    try {
        f();
    } catch (const npuforge::ArgumentError& error) {
        return std::string(error.what()).find(part) != std::string::npos;
    }
    return false;
}

template <typename T>
void taken(Type type, float value, T expected) {
    T found = static_cast<T>(99);
    npuforge::whole_numbers(type, "t", &value, &found, 1);
    require(found == expected, std::string(npuforge::cpu::type_name(type)) + " of " + std::to_string(value));
}

template <typename T>
void not_taken(Type type, float value) {
    std::vector<float> values = {0.0F, 1.0F, value};
    std::vector<T> found(3);
    require(refused("input 't': element 2 is ",
                    [&] { npuforge::whole_numbers(type, "t", values.data(), found.data(), 3); }),
            std::string(npuforge::cpu::type_name(type)) + " takes " + std::to_string(value));
}

template <typename T>
void given(Type type, T value, float expected) {
    float found = 0;
    npuforge::whole_floats(type, "t", &value, &found, 1);
    require(found == expected, std::string(npuforge::cpu::type_name(type)) + " gives " + std::to_string(found));
}

template <typename T>
void not_given(Type type, T value) {
    float found = 0;
    require(refused("which float32 does not hold", [&] { npuforge::whole_floats(type, "t", &value, &found, 1); }),
            std::string(npuforge::cpu::type_name(type)) + " gives " + std::to_string(value));
}

}  // namespace

int main() {
    constexpr float kBeyond63 = 9223372036854775808.0F, kBelow63 = 9223371487098961920.0F;  // 2^63 and the float before
    taken<std::int8_t>(Type::kInt8, -128.0F, -128);
    taken<std::int8_t>(Type::kInt8, 127.0F, 127);
    taken<std::uint8_t>(Type::kUint8, 255.0F, 255);
    taken<std::uint8_t>(Type::kBool, 3.0F, 1);
    taken<std::uint8_t>(Type::kBool, -0.0F, 0);
    taken<std::int32_t>(Type::kInt32, -2147483648.0F, std::numeric_limits<std::int32_t>::min());
    taken<std::int32_t>(Type::kInt32, 2147483520.0F, 2147483520);
    taken<std::int64_t>(Type::kInt64, -kBeyond63, std::numeric_limits<std::int64_t>::min());
    taken<std::int64_t>(Type::kInt64, kBelow63, 9223371487098961920);
    for (const float value : {-129.0F, 128.0F, 0.5F, std::numeric_limits<float>::quiet_NaN()})
        not_taken<std::int8_t>(Type::kInt8, value);
    for (const float value : {-1.0F, 256.0F, std::numeric_limits<float>::infinity(), 1e-30F})
        not_taken<std::uint8_t>(Type::kUint8, value);
    for (const float value : {2147483648.0F, -2147483904.0F}) not_taken<std::int32_t>(Type::kInt32, value);
    for (const float value : {kBeyond63, -9223373136366403584.0F}) not_taken<std::int64_t>(Type::kInt64, value);
    given<std::int32_t>(Type::kInt32, 16777216, 16777216.0F);
    given<std::int64_t>(Type::kInt64, std::numeric_limits<std::int64_t>::min(), -kBeyond63);
    given<std::int64_t>(Type::kInt64, 9223371487098961920, kBelow63);
    given<std::uint8_t>(Type::kUint8, 255, 255.0F);
    given<std::int8_t>(Type::kInt8, -128, -128.0F);
    not_given<std::int32_t>(Type::kInt32, 16777217);
    not_given<std::int32_t>(Type::kInt32, std::numeric_limits<std::int32_t>::max());
    not_given<std::int64_t>(Type::kInt64, std::numeric_limits<std::int64_t>::max());
    not_given<std::int64_t>(Type::kInt64, -16777217);
    return wrong == 0 ? 0 : 1;
}
