// Owns the overlap tests of strided byte ranges.
#include "view.hpp"

#include <algorithm>

namespace npuforge::sim {

bool View::overlaps_itself() const {
    if (cols > 1 && col_stride < length) return true;
    if (rows > 1 && row_stride < (cols - 1) * col_stride + length) return true;
    return false;
}

namespace {

// Length of the interval that holds every byte of the view modulo `period`, from its first byte on; `period` if that is
// all of the circle.
std::uint64_t span_modulo(const View& v, std::uint64_t period) {
    if (v.rows > 1 && v.row_stride % period != 0) return period;
    const bool folds = v.cols == 1 || v.col_stride % period == 0;
    return std::min(period, folds ? v.length : (v.cols - 1) * v.col_stride + v.length);
}

bool disjoint_modulo(const View& a, const View& b, std::uint64_t period) {
    if (period == 0) return false;
    const std::uint64_t a_length = span_modulo(a, period), b_length = span_modulo(b, period);
    if (a_length + b_length > period) return false;
    const std::uint64_t from_a = (b.address % period + period - a.address % period) % period;
    return from_a >= a_length && from_a + b_length <= period;
}

}  // namespace

bool may_overlap(const View& a, const View& b) {
    if (a.space != b.space || a.address >= b.end() || b.address >= a.end()) return false;
    // Views into one buffer interleave without sharing bytes: channels of a concatenation, phases of a transposed
    // convolution.
    for (const View* v : {&a, &b}) {
        if (v->cols > 1 && disjoint_modulo(a, b, v->col_stride)) return false;
        if (v->rows > 1 && disjoint_modulo(a, b, v->row_stride)) return false;
    }
    return true;
}

}  // namespace npuforge::sim
