// See whole_numbers.hpp.
#include "npuforge/whole_numbers.hpp"

#include <cmath>
#include <limits>

#include "npuforge/cpu_math.hpp"

namespace npuforge {

using cpu::Type;

namespace {

// One more than the largest value of an integer type: a float, which the largest itself may not be.
template <typename T>
double end_of() {
    return std::ldexp(1.0, std::numeric_limits<T>::digits);
}

}  // namespace

void whole_numbers(Type type, const std::string& name, const float* from, void* to, std::size_t count) {
    cpu::with_type(type, [&](auto own) {
        using T = decltype(own);
        for (std::size_t i = 0; i < count; ++i) {
            const double value = from[i];
            const bool in_range = value >= static_cast<double>(std::numeric_limits<T>::lowest()) && value < end_of<T>();
            if (!in_range || std::floor(value) != value) {
                throw ArgumentError("input '" + name + "': element " + std::to_string(i) + " is " +
                                    std::to_string(value) + ", expected a whole number that " + cpu::type_name(type) +
                                    " holds");
            }
            static_cast<T*>(to)[i] = type == Type::kBool ? static_cast<T>(value != 0) : static_cast<T>(value);
        }
    });
}

void whole_floats(Type type, const std::string& name, const void* from, float* to, std::size_t count) {
    cpu::with_type(type, [&](auto own) {
        using T = decltype(own);
        for (std::size_t i = 0; i < count; ++i) {
            const T value = static_cast<const T*>(from)[i];
            to[i] = static_cast<float>(value);
            if (!(static_cast<double>(to[i]) < end_of<T>()) || static_cast<T>(to[i]) != value) {
                throw ArgumentError("output '" + name + "': element " + std::to_string(i) + " is " +
                                    std::to_string(value) + ", which float32 does not hold; give a buffer of type " +
                                    cpu::type_name(type));
            }
        }
    });
}

}  // namespace npuforge
