// Owns the tracking of constant on-chip bytes (see tracker.hpp).
#include "tracker.hpp"

#include <algorithm>
#include <cstring>

namespace npuforge::sim {
namespace {

template <class Visit>
void for_each_run(const View& view, Visit visit) {
    for (std::uint64_t r = 0; r < view.rows; ++r) {
        for (std::uint64_t c = 0; c < view.cols; ++c) visit(view.address + r * view.row_stride + c * view.col_stride);
    }
}

}  // namespace

void Tracker::write_computed(const View& view) {
    for_each_run(view, [&](std::uint64_t address) {
        const auto first = granules_.begin() + static_cast<std::ptrdiff_t>(address / kGranule);
        std::fill(first, first + static_cast<std::ptrdiff_t>(view.length / kGranule), kComputed);
    });
}

void Tracker::write_image(const TransferOp& op) {
    for (int r = 0; r < op.rows; ++r) {
        for (int c = 0; c < op.cols; ++c) {
            const std::size_t to = op.to.at(r, c), from = op.from.at(r, c);
            for (std::size_t i = 0; i < op.chunk; i += kGranule)
                granules_[(to + i) / kGranule] = static_cast<std::int64_t>(from + i);
        }
    }
}

bool Tracker::reads_unwritten(const View& view) const {
    bool found = false;
    for_each_run(view, [&](std::uint64_t address) {
        for (std::uint64_t g = address / kGranule; g * kGranule < address + view.length; ++g)
            found = found || granules_[g] == kUnwritten;
    });
    return found;
}

const std::uint8_t* Tracker::constant(std::uint32_t address, std::size_t bytes, std::string& key) {
    const std::size_t first = address / kGranule, count = (bytes + kGranule - 1) / kGranule;
    bool contiguous = true;
    for (std::size_t i = 0; i < count; ++i) {
        if (granules_[first + i] < 0) return nullptr;
        contiguous = contiguous && granules_[first + i] == granules_[first] + static_cast<std::int64_t>(i * kGranule);
    }
    const auto append = [&key](std::int64_t offset) {
        key.append(reinterpret_cast<const char*>(&offset), sizeof offset);
    };
    append(static_cast<std::int64_t>(contiguous ? 1 : count));
    if (contiguous) {
        append(granules_[first]);
        return image_ + granules_[first];
    }
    std::shared_ptr<std::uint8_t[]> copy(new std::uint8_t[count * kGranule]);
    for (std::size_t i = 0; i < count; ++i) {
        append(granules_[first + i]);
        std::memcpy(copy.get() + i * kGranule, image_ + granules_[first + i], kGranule);
    }
    owned_.push_back(copy);
    return copy.get();
}

}  // namespace npuforge::sim
