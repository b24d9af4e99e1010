// The AI CPU side: kernels as CANN calls them (cpu_kernel.h).

namespace npuforge::aicpu {

inline cpu::Type type_of(::aicpu::DataType type) {
    switch (type) {
        case ::aicpu::DT_FLOAT:
            return cpu::Type::kFloat32;
        case ::aicpu::DT_INT64:
            return cpu::Type::kInt64;
        case ::aicpu::DT_INT32:
            return cpu::Type::kInt32;
        case ::aicpu::DT_BOOL:
            return cpu::Type::kBool;
        case ::aicpu::DT_UINT8:
            return cpu::Type::kUint8;
        case ::aicpu::DT_INT8:
            return cpu::Type::kInt8;
        default:
            throw Error("a tensor has element type " + std::to_string(static_cast<int>(type)) +
                        " of CANN, which no kernel of this library takes");
    }
}

inline json::Value attribute_of(::aicpu::CpuKernelContext& context, const Attribute& attribute) {
    ::aicpu::AttrValue* value = context.GetAttr(attribute.name);
    if (!value) return {};
    switch (attribute.kind) {
        case Kind::kInt:
            return json::Value(static_cast<std::int64_t>(value->GetInt()));
        case Kind::kFloat:
            return json::Value(static_cast<double>(value->GetFloat()));
        case Kind::kInts:
            return list_of(value->GetListInt());
        case Kind::kFloats:
            return list_of(value->GetListFloat());
    }
    return {};
}

/// 0, or 1 (CANN's status for wrong parameters); the reason goes to the error stream, which CANN's device log takes.
inline std::uint32_t compute(const Signature& signature, ::aicpu::CpuKernelContext& context) {
    try {
        if (context.GetInputsSize() != signature.inputs || context.GetOutputsSize() != signature.outputs)
            throw Error("other numbers of inputs and outputs than the network that this was generated for");
        Call call(signature, [&](const Attribute& attribute) { return attribute_of(context, attribute); });
        for (std::size_t i = 0; i < signature.inputs; ++i) {
            ::aicpu::Tensor* tensor = context.Input(static_cast<std::uint32_t>(i));
            call.in(i).type = type_of(tensor->GetDataType());
            call.in(i).shape = cpu::Shape(tensor->GetTensorShape()->GetDimSizes());
            call.in(i).data = tensor->GetData();
            if (tensor->GetDataSize() < call.in(i).bytes()) throw Error("input " + std::to_string(i) + " is too short");
        }
        call.infer();
        for (std::size_t i = 0; i < signature.outputs; ++i) {
            ::aicpu::Tensor* tensor = context.Output(static_cast<std::uint32_t>(i));
            call.out(i).data = tensor->GetData();
            if (tensor->GetDataSize() < call.out(i).bytes())
                throw Error("output " + std::to_string(i) + " has no room for " + call.out(i).shape.text());
        }
        call.run();
        for (std::size_t i = 0; call.dynamic() && i < signature.outputs; ++i) {
            const cpu::Shape& shape = call.out(i).shape;
            context.Output(static_cast<std::uint32_t>(i))
                ->GetTensorShape()
                ->SetDimSizes({shape.dim, shape.dim + shape.rank});
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "npuforge, %s: %s\n", signature.op, error.what());
        return 1;
    }
}

}  // namespace npuforge::aicpu
