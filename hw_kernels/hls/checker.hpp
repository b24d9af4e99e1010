// What the checks of all instructions share: the collector of the first refusal, shapes, windows, alignment, bounds.
// Order of the checks of one instruction: values, alignment, bounds; within each, the order of the fields in the table.
#pragma once

#include "window.hpp"

namespace npuforge {
namespace hls {

typedef isa::FieldId Id;

/// Collects the first refusal; later ones are ignored.
struct Checker {
    Status status;

    void require(bool condition, Code code, Id field) {
        NPU_INLINE
        if (!condition && status.code == Code::OK) status = refuse(code, field);
    }
    void value(bool condition, Id field) { require(condition, Code::ILLEGAL_VALUE, field); }
    void positive(uint32_t number, Id field) { require(number > 0u, Code::ILLEGAL_VALUE, field); }
    void zero(uint32_t number, Id field) { require(number == 0u, Code::ILLEGAL_VALUE, field); }
    void aligned(uint32_t number, Id field) { require((number & 15u) == 0u, Code::MISALIGNED, field); }
    bool ok() const { return status.code == Code::OK; }

    /// Bytes of a grid of rows x columns items of `bytes`, counts being positive and below 2^16: no overflow in 64
    /// bits.
    void grid(uint32_t address, uint32_t rows, uint32_t row_stride, uint32_t columns, uint32_t column_stride,
              uint64_t bytes, uint64_t limit, Id field) {
        if (!ok()) return;
        const uint64_t last = (uint64_t)(rows - 1u) * row_stride + (uint64_t)(columns - 1u) * column_stride;
        require((uint64_t)address + last + bytes <= limit, Code::OUT_OF_BOUNDS, field);
    }
    /// A plain range.
    void range(uint32_t address, uint64_t bytes, uint64_t limit, Id field) {
        if (!ok()) return;
        require((uint64_t)address + bytes <= limit, Code::OUT_OF_BOUNDS, field);
    }
};

/// Shape fields of the output map. \tparam I an instruction with BLOCKS_OUT and OUTPUT
template <class I>
inline void check_output_values(Checker& c, const I& i) {
    c.positive(i.blocks_out, Id::blocks_out);
    c.positive(i.out_h, Id::out_h);
    c.positive(i.out_w, Id::out_w);
}
/// Pixels and rows of the output do not share bytes. \param lane_bytes 1 for int8, 2 for bf16
template <class I>
inline void check_output_alignment(Checker& c, const I& i, uint32_t lane_bytes) {
    c.aligned(i.out_addr, Id::out_addr);
    c.aligned(i.out_row_stride, Id::out_row_stride);
    c.aligned(i.out_pixel_stride, Id::out_pixel_stride);
    const uint32_t pixel_bytes = (uint32_t)LANES * lane_bytes * i.blocks_out;
    c.value(i.out_w <= 1u || i.out_pixel_stride >= pixel_bytes, Id::out_pixel_stride);
    const uint64_t row_bytes = (uint64_t)(i.out_w - 1u) * i.out_pixel_stride + pixel_bytes;
    c.value(i.out_h <= 1u || i.out_row_stride >= row_bytes, Id::out_row_stride);
}
template <class I>
inline void check_output_bounds(Checker& c, const I& i, const Limits& l, uint32_t lane_bytes) {
    c.grid(i.out_addr, i.out_h, i.out_row_stride, i.out_w, i.out_pixel_stride,
           (uint64_t)LANES * lane_bytes * i.blocks_out, l.sram_bytes, Id::out_addr);
}
/// \tparam I an instruction with WINDOW
template <class I>
inline void check_window(Checker& c, const I& i) {
    c.positive(i.kernel_h, Id::kernel_h);
    c.positive(i.kernel_w, Id::kernel_w);
    c.positive(i.stride_h, Id::stride_h);
    c.positive(i.stride_w, Id::stride_w);
    c.positive(i.dilation_h, Id::dilation_h);
    c.positive(i.dilation_w, Id::dilation_w);
}
template <class I>
inline void check_input_alignment(Checker& c, const I& i) {
    c.aligned(i.in_addr, Id::in_addr);
    c.aligned(i.in_row_stride, Id::in_row_stride);
    c.aligned(i.in_pixel_stride, Id::in_pixel_stride);
}
/// Fewest and most valid taps of one axis over all output coordinates.
struct TapCounts {
    uint32_t fewest = 0xffffffffu;
    uint32_t most = 0;
};

/// \param out output coordinates \param extent coordinates held
inline TapCounts count_taps(uint32_t out, uint32_t stride, int32_t pad, uint32_t kernel, uint32_t dilation,
                            uint32_t extent) {
    TapCounts counts;
    for (uint32_t o = 0; o < out; ++o) {
        NPU_TRIPCOUNT(1, 416)
        const int32_t origin = window_origin(o, stride, pad);
        const uint32_t first = origin >= 0 ? 0u : ((uint32_t)(-origin) + dilation - 1u) / dilation;
        const int32_t room = (int32_t)extent - 1 - origin;
        const uint32_t reach = room < 0 ? 0u : (uint32_t)room / dilation + 1u;
        const uint32_t last = reach < kernel ? reach : kernel;
        const uint32_t count = last > first ? last - first : 0u;
        counts.fewest = count < counts.fewest ? count : counts.fewest;
        counts.most = count > counts.most ? count : counts.most;
    }
    return counts;
}
/// Counts the taps of a pool's windows, once the fields are legal; a window without any is refused.
template <class I>
inline void check_every_window_has_taps(Checker& c, const I& i, TapCounts& rows, TapCounts& columns) {
    if (!c.ok()) return;
    rows = count_taps(i.out_h, i.stride_h, i.pad_top, i.kernel_h, i.dilation_h, i.in_h);
    columns = count_taps(i.out_w, i.stride_w, i.pad_left, i.kernel_w, i.dilation_w, i.in_w);
    c.positive(rows.fewest, Id::pad_top);
    c.positive(columns.fewest, Id::pad_left);
}
/// The values of a load that folds taps into the channel block.
template <class I>
inline void check_fold_values(Checker& c, const I& i) {
    c.value(i.region <= 1u, Id::region);
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    c.value(i.channels >= 1u && i.channels <= 4u, Id::channels);
    check_window(c, i);
    c.value(i.dilation_h == 1u, Id::dilation_h);
    c.value(i.dilation_w == 1u, Id::dilation_w);
    check_output_values(c, i);
    c.value((uint64_t)i.kernel_h * i.kernel_w * i.channels <= 16u * (uint64_t)i.blocks_out, Id::blocks_out);
}
/// The weights of a convolution, counted step by step, because the product of all fields does not fit 64 bits.
/// \param element_bytes bytes of a weight
template <class I>
inline void check_weight_tiles(Checker& c, const I& i, const Limits& l, uint32_t element_bytes) {
    const uint64_t taps = (uint64_t)i.kernel_h * i.kernel_w;
    c.require(taps <= l.sram_bytes, Code::OUT_OF_BOUNDS, Id::weight_addr);
    const uint64_t tiles = c.ok() ? taps * i.blocks_in : 0u;
    c.require(tiles <= l.sram_bytes, Code::OUT_OF_BOUNDS, Id::weight_addr);
    if (c.ok())
        c.range(i.weight_addr, tiles * i.blocks_out * (element_bytes * LANES * LANES), l.sram_bytes, Id::weight_addr);
}

}  // namespace hls
}  // namespace npuforge
