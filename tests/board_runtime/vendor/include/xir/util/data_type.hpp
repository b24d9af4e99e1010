// Stand-in for the vendor's header: only what our plug-in uses, in our own words, so that every test run compiles the
// plug-in where the vendor's library is absent. Not its binary layout: a plug-in built with this header works with
// these tests only.
#pragma once

#include <any>
#include <cstdint>
#include <string>

namespace xir {

using any = std::any;

struct DataType {
    enum Type { INT, UINT, XINT, XUINT, FLOAT, BFLOAT, UNKNOWN };

    Type type = UNKNOWN;
    std::int32_t bit_width = 0;

    const std::string to_string() const {
        static const char* const names[] = {"INT", "UINT", "XINT", "XUINT", "FLOAT", "BFLOAT", "UNKNOWN"};
        return names[type] + std::to_string(bit_width);
    }
};

}  // namespace xir
