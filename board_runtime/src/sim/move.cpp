// Owns the steps that move bytes: LOAD, STORE, COPY and LOAD_FOLD. The compiler's own vectorisation is enough here.
#include <algorithm>
#include <cstring>

#include "generic.hpp"
#include "step.hpp"

namespace npuforge::sim {
namespace {

class TransferStep : public Step {
  public:
    explicit TransferStep(const TransferOp& op) : op_(op) {
        cost = static_cast<double>(op.rows) * op.cols * (4 + op.chunk / 16.0);
        // Fewer, longer copies where rows or columns follow each other on both sides.
        if (op_.from.pixel_stride == op_.chunk && op_.to.pixel_stride == op_.chunk) {
            op_.chunk *= static_cast<std::uint32_t>(op_.cols);
            op_.cols = 1;
        }
        units = op_.rows;
    }
    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        generic::transfer(op_, memory, begin, end);
    }

  private:
    TransferOp op_;
};

class FoldStep : public Step {
  public:
    FoldStep(const FoldOp& op, std::size_t source_bytes) : op_(op), source_bytes_(source_bytes) {
        units = op.out_h;
        cost = static_cast<double>(op.out_h) * op.out_w * (10 + 5 * op.window.kernel_h);
    }

    void run(const Memory& memory, std::uint8_t*, int begin, int end) const override {
        const Window& w = op_.window;
        const std::size_t lanes = static_cast<std::size_t>(op_.out_bytes);
        const std::size_t tap_bytes = static_cast<std::size_t>(w.kernel_w) * op_.pixel_bytes;
        const std::size_t used = tap_bytes * w.kernel_h;
        // Pixels are written left to right by fixed-size copies that run over into the next pixel, which comes after.
        const std::size_t copy = tap_bytes <= 16 ? 16 : 32;
        const bool wide = tap_bytes <= copy && op_.out.pixel_stride == lanes && used + copy <= 2 * lanes;
        for (int y = begin; y < end; ++y) {
            const long iy = window_source(y, w.stride_h, w.pad_top, 0, 1);
            int first = 0, last = 0;
            if (wide && iy >= 0 && iy + w.kernel_h <= op_.in_h) interior(iy, copy, &first, &last);
            exact(memory, y, 0, first);
            if (copy == 16)
                row<16>(memory, y, iy, first, last, lanes, tap_bytes, used);
            else
                row<32>(memory, y, iy, first, last, lanes, tap_bytes, used);
            exact(memory, y, last, op_.out_w);
        }
    }

  private:
    // Columns [*first, *last) whose windows lie inside the image and whose fixed-size copies stay inside the source;
    // never the last column.
    void interior(long iy, std::size_t copy, int* first, int* last) const {
        const Window& w = op_.window;
        const auto column = [&](int x) { return window_source(x, w.stride_w, w.pad_left, 0, 1); };
        const auto fits = [&](int x) {
            const std::size_t end = op_.address + static_cast<std::size_t>(iy + w.kernel_h - 1) * op_.row_stride +
                                    static_cast<std::size_t>(column(x)) * op_.pixel_bytes + copy;
            return column(x) + w.kernel_w <= op_.in_w && end <= source_bytes_;
        };
        while (*first < op_.out_w && column(*first) < 0) ++*first;
        *last = std::max(*first, op_.out_w - 1);
        while (*last > *first && !fits(*last - 1)) --*last;
    }

    template <std::size_t kCopy>
    void row(const Memory& memory, int y, long iy, int first, int last, std::size_t lanes, std::size_t tap_bytes,
             std::size_t used) const {
        const Window& w = op_.window;
        const std::uint8_t* source = memory.source(op_.from_space) + op_.address + iy * op_.row_stride +
                                     window_source(first, w.stride_w, w.pad_left, 0, 1) * op_.pixel_bytes;
        std::uint8_t* out = memory.sram + op_.out.at(y, first);
        for (int x = first; x < last; ++x) {
            const std::uint8_t* from = source;
            std::uint8_t* to = out;
            for (int ky = 0; ky < w.kernel_h; ++ky) {
                std::memcpy(to, from, kCopy);
                from += op_.row_stride;
                to += tap_bytes;
            }
            for (std::size_t lane = used; lane < lanes; lane += 16) std::memset(out + lane, 0, 16);
            source += w.stride_w * op_.pixel_bytes;
            out += lanes;
        }
    }

    void exact(const Memory& memory, int y, int first, int last) const {
        if (first == last) return;
        FoldOp part = op_;
        part.out.address = static_cast<std::uint32_t>(op_.out.at(y, first));
        part.out_w = last - first;
        part.window.pad_left = op_.window.pad_left - first * op_.window.stride_w;
        part.window.pad_top = op_.window.pad_top - y * op_.window.stride_h;
        generic::fold(part, memory, 0, 1);
    }

    FoldOp op_;
    std::size_t source_bytes_;
};

}  // namespace

std::unique_ptr<Step> make_transfer(const TransferOp& op) { return std::make_unique<TransferStep>(op); }

std::unique_ptr<Step> make_fold(const FoldOp& op, std::size_t source_bytes) {
    return std::make_unique<FoldStep>(op, source_bytes);
}

}  // namespace npuforge::sim
