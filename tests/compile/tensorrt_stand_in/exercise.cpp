// Drives the generated plug-ins as TensorRT does, on the stand-in: create, serialise, create again, shapes, enqueue.
// `npuforge_launch` runs the kernels' bodies on the host, last index first: no index may depend on another.
#include "npuforge_operator_plugins.cpp"

namespace {
struct Backwards {
    template <class Body>
    void operator()(std::int64_t count, const Body& body) const {
        for (std::int64_t i = count; i-- > 0;) body(i);
    }
};
struct Kept : nvinfer1::ILogger {
    std::string text;
    void log(Severity, const char* message) noexcept override { text = message; }
} kept;
}  // namespace

extern "C" nvinfer1::ILogger* getLogger() noexcept { return &kept; }
extern "C" const char* last_message() { return kept.text.c_str(); }

#define ON_HOST(kind)                                                                                          \
    int npuforge_launch(const npuforge::parallel::kind& op, const npuforge::parallel::Call& c, cudaStream_t) { \
        op.run(c, Backwards{});                                                                                \
        return 0;                                                                                              \
    }
#include "launchers.inc"

/// Attributes as the ONNX parser passes them: float32 or int32. `outputs`: where each output begins, with room for
/// `out_bytes`; `out_dims`: [outputs][8], `out_ranks`. Dimensions as they come out, the size tensor's value in place of
/// the upper bound. Returns 0, else the step that failed.
extern "C" int run_plugin(const char* type, int fields, const char** names, const int* is_float, const int* lengths,
                          const double* values, int inputs, const int* ranks, const std::int64_t* dims,
                          const void** data, int outputs, std::int64_t out_bytes, void** out, std::int64_t* out_dims,
                          int* out_ranks, int* out_types) {
    using namespace nvinfer1;
    IPluginCreatorV3One* creator = registered().at(type);
    std::vector<std::vector<float>> floats(static_cast<std::size_t>(fields));
    std::vector<std::vector<std::int32_t>> integers(static_cast<std::size_t>(fields));
    std::vector<PluginField> given;
    for (int f = 0; f < fields; values += lengths[f], ++f) {
        floats[f].assign(values, values + lengths[f]);
        integers[f].assign(values, values + lengths[f]);
        if (is_float[f])
            given.emplace_back(names[f], floats[f].data(), PluginFieldType::kFLOAT32, lengths[f]);
        else
            given.emplace_back(names[f], integers[f].data(), PluginFieldType::kINT32, lengths[f]);
    }
    const PluginFieldCollection collection{fields, given.data()};
    std::unique_ptr<IPluginV3> first(creator->createPlugin("node", &collection, TensorRTPhase::kBUILD));
    if (!first) return 1;
    auto* before = static_cast<IPluginV3OneRuntime*>(first->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    std::unique_ptr<IPluginV3> again(
        creator->createPlugin("node", before->getFieldsToSerialize(), TensorRTPhase::kRUNTIME));
    if (!again) return 2;
    auto* build = static_cast<IPluginV3OneBuild*>(again->getCapabilityInterface(PluginCapabilityType::kBUILD));
    const int total = build->getNbOutputs();
    IExprBuilder builder;
    std::vector<DimsExprs> in_exprs(inputs), out_exprs(total);
    std::vector<PluginTensorDesc> in_tensors(inputs), out_tensors(total);
    for (int i = 0; i < inputs; ++i) {
        in_exprs[i].nbDims = in_tensors[i].dims.nbDims = ranks[i];
        for (int d = 0; d < ranks[i]; ++d, ++dims) {
            in_exprs[i].d[d] = builder.constant(*dims);
            in_tensors[i].dims.d[d] = *dims;
        }
    }
    if (build->getOutputShapes(in_exprs.data(), inputs, nullptr, 0, out_exprs.data(), total, builder)) return 3;
    std::vector<DataType> types(total);
    build->getOutputDataTypes(types.data(), total, nullptr, 0);
    std::vector<DynamicPluginTensorDesc> all(inputs + total);
    for (int i = 0; i < inputs; ++i) all[i].max = all[i].desc.dims = in_tensors[i].dims;
    for (int i = 0; i < inputs + total; ++i)  // exactly one type is taken at each place
        for (const DataType t : {DataType::kFLOAT, DataType::kINT64, DataType::kINT32, DataType::kHALF}) {
            all[i].desc.type = t;
            all[i].desc.format = TensorFormat::kLINEAR;
            if (build->supportsFormatCombination(i, all.data(), inputs, total)) {
                if (i >= inputs && t != types[i - inputs]) return 4;
                break;
            }
            if (t == DataType::kHALF) return 5;
        }
    std::vector<std::uint8_t> workspace(build->getWorkspaceSize(all.data(), inputs, all.data() + inputs, total));
    std::int32_t size = -1;
    std::vector<void*> places;
    for (int i = 0; i < total; ++i) {
        std::int64_t bytes = types[i] == DataType::kINT64 ? 8 : 4;
        out_tensors[i].dims.nbDims = out_exprs[i].nbDims;
        for (int d = 0; d < out_exprs[i].nbDims; ++d) {
            out_tensors[i].dims.d[d] = out_exprs[i].d[d]->isSizeTensor() ? -1 : out_exprs[i].d[d]->getConstantValue();
            bytes *= out_exprs[i].d[d]->getConstantValue();
        }
        if (i < outputs && bytes > out_bytes) return 6;
        places.push_back(i == builder.size_output ? static_cast<void*>(&size) : i < outputs ? out[i] : nullptr);
    }
    auto* attached = static_cast<IPluginV3OneRuntime*>(again->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    attached->onShapeChange(in_tensors.data(), inputs, out_tensors.data(), total);
    std::unique_ptr<IPluginV3> context(attached->attachToContext(nullptr));
    auto* run = static_cast<IPluginV3OneRuntime*>(context->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    if (run->enqueue(in_tensors.data(), out_tensors.data(), data, places.data(), workspace.data(), nullptr)) return 7;
    for (int i = 0; i < outputs; ++i) {
        out_ranks[i] = out_exprs[i].nbDims;
        out_types[i] = static_cast<int>(types[i]);
        for (int d = 0; d < out_exprs[i].nbDims; ++d)
            out_dims[8 * i + d] = out_exprs[i].d[d]->isSizeTensor() ? size : out_exprs[i].d[d]->getConstantValue();
    }
    return 0;
}
