// Trigonometric and hyperbolic functions and their inverses on the CPU partition.
#pragma once

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

inline void register_trigonometry(Registry& registry) {
    const auto add = [&registry](const char* op, float (*function)(float)) {
        registry.add(op, [function](const NodeInfo& node) { return unary(node, function); });
    };
    add("Sin", [](float x) { return std::sin(x); });
    add("Cos", [](float x) { return std::cos(x); });
    add("Tan", [](float x) { return std::tan(x); });
    add("Asin", [](float x) { return std::asin(x); });
    add("Acos", [](float x) { return std::acos(x); });
    add("Atan", [](float x) { return std::atan(x); });
    add("Sinh", [](float x) { return std::sinh(x); });
    add("Cosh", [](float x) { return std::cosh(x); });
    add("Asinh", [](float x) { return std::asinh(x); });
    add("Acosh", [](float x) { return std::acosh(x); });
    add("Atanh", [](float x) { return std::atanh(x); });
}

}  // namespace npuforge::cpu
