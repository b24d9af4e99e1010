// The layers of the meta section and their trace points: where a device's trace finds a layer's output while it runs.
#include <memory>
#include <utility>

#include "meta_fields.hpp"
#include "npuforge/program.hpp"

namespace npuforge {

using namespace meta_fields;

void Program::parse_trace(const json::Value& trace, const std::string& at, TracePoint& point) const {
    using Space = TracePoint::Space;
    const std::string& space = trace.at("space", "meta." + at).as_string("meta." + at + ".space");
    if (space != "sram" && space != "pool" && space != "before_sum")
        fail(at + ".space", "expected sram, pool or before_sum, found " + space);
    point.space = space == "sram" ? Space::kSram : space == "pool" ? Space::kPool : Space::kBeforeSum;
    point.h = int_at(trace, "h", at);
    point.w = int_at(trace, "w", at);
    point.lanes = parse_int32(trace.at("lanes", "meta." + at), at + ".lanes");
    const auto piece_at = [&](const json::Value& value, const std::string& where) {
        TracePiece piece;
        piece.address = size_at(value, "address", where);
        piece.row_stride = size_at(value, "row_stride", where);
        piece.pixel_stride = size_at(value, "pixel_stride", where);
        piece.after_instruction = size_at(value, "after_instruction", where);
        if (piece.after_instruction >= instruction_count_)
            fail(where + ".after_instruction", "expected below " + std::to_string(instruction_count_));
        return piece;
    };
    point.lane_bytes = parse_bf16(trace, at) ? 2 : 1;
    const auto check = [&](const TracePiece& piece, const std::string& where) {
        const bool pool = point.space == Space::kPool;
        check_region(piece.address, piece.rows, point.w, piece.row_stride, piece.pixel_stride,
                     piece.lane_count * point.lane_bytes, pool ? pool_size_ : sram_bytes_, where,
                     pool ? "pool" : "SRAM");
    };
    const std::size_t given = trace.find("lane_count") ? size_at(trace, "lane_count", at) : 0;
    if (point.space != Space::kBeforeSum) {
        TracePiece piece = piece_at(trace, at);
        point.lane_count = check_lanes(point.lanes, given, piece.pixel_stride / point.lane_bytes, at + ".lanes");
        piece.rows = point.h;
        piece.lane_count = point.lane_count;
        check(piece, at);
        point.pieces.push_back(piece);
        return;
    }
    point.lane_count = check_lanes(point.lanes, given, given, at + ".lanes");
    std::size_t index = 0;
    for (const json::Value& value : trace.at("pieces", "meta." + at).as_array("meta." + at + ".pieces")) {
        const std::string where = at + ".pieces[" + std::to_string(index++) + "]";
        TracePiece piece = piece_at(value, where);
        const std::size_t first_row = size_at(value, "first_row", where), rows = size_at(value, "rows", where);
        piece.first_lane = size_at(value, "first_lane", where);
        piece.lane_count = size_at(value, "lane_count", where);
        const auto height = static_cast<std::size_t>(point.h);
        if (rows == 0 || rows > height || first_row > height - rows || piece.lane_count == 0 ||
            piece.lane_count > point.lane_count || piece.first_lane > point.lane_count - piece.lane_count)
            fail(where, "expected rows and lanes of the tensor");
        piece.first_row = static_cast<int>(first_row);
        piece.rows = static_cast<int>(rows);
        check(piece, where);
        point.pieces.push_back(piece);
    }
    if (point.pieces.empty()) fail(at + ".pieces", "expected at least one");
}

void Program::parse_layers() {
    const json::Value* layers = meta_.find("layers");
    if (!layers) return;
    std::size_t index = 0;
    for (const json::Value& value : layers->as_array("meta.layers")) {
        const std::string where = "layers[" + std::to_string(index++) + "]";
        LayerMeta layer;
        layer.id = value.at("id", "meta." + where).as_string("meta." + where + ".id");
        layer.name = value.at("name", "meta." + where).as_string("meta." + where + ".name");
        layer.op = value.at("op", "meta." + where).as_string("meta." + where + ".op");
        layer.tensor = value.at("tensor", "meta." + where).as_string("meta." + where + ".tensor");
        if (const json::Value* sources = value.find("sources"))
            layer.sources = sources->strings("meta." + where + ".sources");
        if (const json::Value* macs = value.find("macs")) layer.macs = macs->as_integer("meta." + where + ".macs");
        if (value.find("first_instruction")) layer.first_instruction = size_at(value, "first_instruction", where);
        if (value.find("last_instruction")) layer.last_instruction = size_at(value, "last_instruction", where);
        if (layer.first_instruction > instruction_count_ || layer.last_instruction > instruction_count_)
            fail(where, "instructions outside the stream of " + std::to_string(instruction_count_));
        if (const json::Value* trace = value.find("trace")) {
            const std::string at = where + ".trace";
            auto point = std::make_unique<TracePoint>();
            parse_trace(*trace, at, *point);
            layer.trace = std::move(point);
        }
        layers_.push_back(std::move(layer));
    }
}

}  // namespace npuforge
