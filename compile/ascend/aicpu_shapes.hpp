// The graph engine's side: output shapes from cpu.hpp (graph/operator_reg.h).

namespace npuforge::aicpu {

inline cpu::Type type_of(ge::DataType type) {
    switch (type) {
        case ge::DT_FLOAT:
            return cpu::Type::kFloat32;
        case ge::DT_INT64:
            return cpu::Type::kInt64;
        case ge::DT_INT32:
            return cpu::Type::kInt32;
        case ge::DT_BOOL:
            return cpu::Type::kBool;
        case ge::DT_UINT8:
            return cpu::Type::kUint8;
        case ge::DT_INT8:
            return cpu::Type::kInt8;
        default:
            throw Error("a tensor has element type " + std::to_string(static_cast<int>(type)) + " of CANN");
    }
}

inline ge::DataType type_of(cpu::Type type) {
    constexpr ge::DataType kTypes[] = {ge::DT_FLOAT, ge::DT_INT64, ge::DT_INT32,
                                       ge::DT_BOOL,  ge::DT_UINT8, ge::DT_INT8};
    return kTypes[static_cast<std::size_t>(type)];
}

template <class Value, class Wrap>
json::Value read(const ge::Operator& op, const char* name, Wrap wrap) {
    Value value{};
    return op.GetAttr(name, value) == ge::GRAPH_SUCCESS ? wrap(value) : json::Value();
}

inline json::Value attribute_of(const ge::Operator& op, const Attribute& attribute) {
    switch (attribute.kind) {
        case Kind::kInt:
            return read<std::int64_t>(op, attribute.name, [](std::int64_t v) { return json::Value(v); });
        case Kind::kFloat:
            return read<float>(op, attribute.name, [](float v) { return json::Value(static_cast<double>(v)); });
        case Kind::kInts:
            return read<std::vector<std::int64_t>>(op, attribute.name, [](const auto& v) { return list_of(v); });
        case Kind::kFloats:
            return read<std::vector<float>>(op, attribute.name, [](const auto& v) { return list_of(v); });
    }
    return {};
}

inline ge::graphStatus infer(const Signature& signature, ge::Operator& op) {
    try {
        Call call(signature, [&](const Attribute& attribute) { return attribute_of(op, attribute); });
        for (std::size_t i = 0; i < signature.inputs; ++i) {
            const ge::TensorDesc desc = op.GetInputDescByName(("x" + std::to_string(i)).c_str());
            call.in(i).type = type_of(desc.GetDataType());
            call.in(i).shape = cpu::Shape(desc.GetShape().GetDims());
        }
        call.infer();
        for (std::size_t i = 0; i < signature.outputs; ++i) {
            const std::string name = "y" + std::to_string(i);
            const cpu::Shape& shape = call.out(i).shape;
            std::vector<std::int64_t> dims(shape.dim, shape.dim + shape.rank);
            ge::TensorDesc desc = op.GetOutputDescByName(name.c_str());
            if (call.dynamic()) {  // one dimension is known from the data only
                const std::size_t open = call.open_axis(shape.rank);
                std::vector<std::pair<std::int64_t, std::int64_t>> range;
                for (const std::int64_t dim : dims) range.emplace_back(dim, dim);
                range.at(open).first = 0;
                dims.at(open) = ge::UNKNOWN_DIM;
                desc.SetShapeRange(range);
            }
            desc.SetShape(ge::Shape(dims));
            desc.SetDataType(type_of(call.out(i).type));
            op.UpdateOutputDesc(name.c_str(), desc);
        }
        return ge::GRAPH_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "npuforge, %s: %s\n", signature.op, error.what());
        return ge::GRAPH_FAILED;
    }
}

}  // namespace npuforge::aicpu
