// The meta section as checked C++ structures: every name resolves, every address stays inside the pool, the SRAM or the
// instruction stream.
#include "npuforge/program.hpp"

#include <algorithm>
#include <set>

#include "meta_fields.hpp"

namespace npuforge {

using namespace meta_fields;

std::vector<std::int64_t> TensorMeta::application_shape() const {
    if (!nhwc || shape.size() != 4) return shape;
    return {shape[0], shape[2], shape[3], shape[1]};
}

std::int64_t TensorMeta::elements() const { return count_of(shape); }

std::shared_ptr<const Program> Program::load(const std::string& path, const std::string& expected_arch) {
    auto file = BinFile::read(path);
    try {
        return parse(std::move(file), expected_arch);
    } catch (const FormatError& error) {
        throw FormatError(path + ": " + error.what());
    } catch (const ArchError& error) {
        throw ArchError(path + ": " + error.what());
    }
}

std::shared_ptr<const Program> Program::parse(std::shared_ptr<const BinFile> file, const std::string& expected_arch) {
    auto program = std::make_shared<Program>();
    program->file_ = std::move(file);
    program->parse_meta();
    program->check_arch(expected_arch);
    program->parse_tensors();
    program->parse_partitions();
    program->parse_constants();
    program->check_dataflow();
    program->parse_layers();
    return program;
}

const TensorMeta& Program::tensor(const std::string& name) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) throw FormatError("meta.tensors: tensor '" + name + "' is missing");
    return it->second;
}

void Program::parse_meta() {
    const Section& section = file_->at("meta");
    if (section.type != SectionType::kJson) throw FormatError(".bin section meta: dtype expected 8 (JSON)");
    meta_ = json::parse({reinterpret_cast<const char*>(file_->data()) + section.offset, section.size}, "meta");
    meta_.at("format", "meta").as_integer("meta.format", 1, 1);
    name_ = meta_.at("name", "meta").as_string("meta.name");
    mode_ = meta_.at("mode", "meta").as_string("meta.mode");
    if (mode_ != "fine" && mode_ != "pow2" && mode_ != "bf16")
        fail("mode", "expected fine, pow2 or bf16, found " + mode_);
    fingerprint_ = meta_.at("fingerprint", "meta").as_string("meta.fingerprint");
    pool_size_ = size_at(meta_, "pool_size", "pool_size");
    sram_bytes_ = static_cast<std::size_t>(
        meta_.at("arch", "meta").at("sram_bytes", "meta.arch").as_integer("meta.arch.sram_bytes", 1, kMaxBytes));
    inputs_ = meta_.at("inputs", "meta").strings("meta.inputs");
    outputs_ = meta_.at("outputs", "meta").strings("meta.outputs");
    if (outputs_.empty()) fail("outputs", "expected at least one");
    const Section& instructions = file_->at("instructions");
    if (instructions.type != SectionType::kInstructions)
        throw FormatError(".bin section instructions: dtype expected 7");
    instruction_count_ = instructions.size / 128;
}

void Program::parse_tensors() {
    for (const auto& [name, value] : meta_.at("tensors", "meta").as_object("meta.tensors")) {
        const std::string where = "tensors['" + name + "']";
        TensorMeta tensor;
        tensor.name = name;
        const bool given = std::find(inputs_.begin(), inputs_.end(), name) != inputs_.end();
        tensor.shape = parse_shape(value.at("shape", "meta." + where), where + ".shape", !given);
        tensor.dtype = value.at("dtype", "meta." + where).as_string("meta." + where + ".dtype");
        if (const json::Value* npu = value.find("npu")) {
            auto t = std::make_unique<NpuTensor>();
            const std::string at = where + ".npu";
            t->offset = size_at(*npu, "offset", at);
            t->h = int_at(*npu, "h", at);
            t->w = int_at(*npu, "w", at);
            t->c = int_at(*npu, "c", at);
            t->row_stride = size_at(*npu, "row_stride", at);
            t->pixel_stride = size_at(*npu, "pixel_stride", at);
            t->lanes = parse_int32(npu->at("lanes", "meta." + at), at + ".lanes");
            t->scale = npu->at("scale", "meta." + at).numbers("meta." + at + ".scale");
            t->zero_point = parse_int32(npu->at("zero_point", "meta." + at), at + ".zero_point");
            if (const json::Value* mean = npu->find("image_mean"))
                t->image_mean = mean->numbers("meta." + at + ".image_mean");
            if (const json::Value* fix = npu->find("fix_point")) {
                t->has_fix_point = true;
                t->fix_point = static_cast<int>(fix->as_integer("meta." + at + ".fix_point", -64, 64));
            }
            const auto channels = static_cast<std::size_t>(t->c);
            if (t->lanes.size() != channels || t->scale.size() != channels || t->zero_point.size() != channels ||
                (t->is_image() && t->image_mean.size() != channels))
                fail(at, "lanes, scale, zero_point and image_mean need one entry for each of " + std::to_string(t->c) +
                             " channels");
            for (const double scale : t->scale)
                if (!(scale > 0.0)) fail(at + ".scale", "expected positive numbers");
            const bool map_shape = tensor.shape.size() == 4 && tensor.shape[0] == 1 && tensor.shape[1] == t->c &&
                                   tensor.shape[2] == t->h && tensor.shape[3] == t->w;
            const bool row_shape =
                tensor.shape.size() == 2 && tensor.shape[0] == 1 && tensor.shape[1] == t->c && t->h == 1 && t->w == 1;
            if (!map_shape && !row_shape) fail(at, "h, w, c do not match the shape (1, C, H, W)");
            t->bf16 = parse_bf16(*npu, at);
            const std::size_t bytes = t->bf16 ? 2 : 1;
            t->lane_count = check_lanes(t->lanes, 0, t->pixel_stride / bytes, at + ".lanes");
            check_region(t->offset, t->h, t->w, t->row_stride, t->pixel_stride, t->lane_count * bytes, pool_size_, at,
                         "pool");
            tensor.npu = std::move(t);
        }
        tensors_.emplace(name, std::move(tensor));
    }
    if (const json::Value* layouts = meta_.find("input_layout"))
        for (const auto& [name, layout] : layouts->as_object("meta.input_layout")) {
            const std::string& text = layout.as_string("meta.input_layout");
            if (text != "NCHW" && text != "NHWC") fail("input_layout", "expected NCHW or NHWC, found " + text);
            const auto it = tensors_.find(name);
            if (it == tensors_.end()) fail("input_layout", "tensor '" + name + "' is missing in tensors");
            it->second.nhwc = text == "NHWC";
        }
}

void Program::parse_partitions() {
    std::size_t index = 0;
    for (const json::Value& value : meta_.at("partitions", "meta").as_array("meta.partitions")) {
        const std::string where = "partitions[" + std::to_string(index++) + "]";
        PartitionMeta partition;
        const std::string& device = value.at("device", "meta." + where).as_string("meta." + where + ".device");
        if (device != "NPU" && device != "CPU") fail(where + ".device", "expected NPU or CPU, found " + device);
        partition.npu = device == "NPU";
        partition.inputs = value.at("inputs", "meta." + where).strings("meta." + where + ".inputs");
        partition.outputs = value.at("outputs", "meta." + where).strings("meta." + where + ".outputs");
        if (partition.npu) {
            partition.first_instruction = size_at(value, "first_instruction", where);
            partition.instruction_count = size_at(value, "instruction_count", where);
            if (partition.instruction_count == 0 ||
                partition.first_instruction + partition.instruction_count > instruction_count_)
                fail(where, "instructions " + std::to_string(partition.first_instruction) + " + " +
                                std::to_string(partition.instruction_count) + " of " +
                                std::to_string(instruction_count_));
            for (const auto* list : {&partition.inputs, &partition.outputs})
                for (const std::string& name : *list)
                    if (!tensor(name).npu)
                        fail(where, "tensor '" + name + "' crosses the NPU's border but has no place in the pool");
        } else {
            std::size_t node_index = 0;
            for (const json::Value& item : value.at("nodes", "meta." + where).as_array("meta." + where + ".nodes")) {
                const std::string at = where + ".nodes[" + std::to_string(node_index++) + "]";
                CpuNode node;
                node.name = item.at("name", "meta." + at).as_string("meta." + at + ".name");
                node.op = item.at("op", "meta." + at).as_string("meta." + at + ".op");
                node.inputs = item.at("inputs", "meta." + at).strings("meta." + at + ".inputs");
                node.outputs = item.at("outputs", "meta." + at).strings("meta." + at + ".outputs");
                if (const json::Value* attrs = item.find("attrs")) {
                    attrs->as_object("meta." + at + ".attrs");
                    node.attrs = *attrs;
                }
                if (const json::Value* activation = item.find("activation")) {
                    activation->as_object("meta." + at + ".activation");
                    node.activation = *activation;
                }
                partition.nodes.push_back(std::move(node));
            }
        }
        partitions_.push_back(std::move(partition));
    }
    std::size_t position = 0;
    for (const PartitionMeta& partition : partitions_) {
        if (!partition.npu) continue;
        if (partition.first_instruction != position)
            fail("partitions", "the NPU partitions must tile the instruction stream in order");
        position += partition.instruction_count;
    }
    if (position != instruction_count_)
        fail("partitions",
             "cover " + std::to_string(position) + " of " + std::to_string(instruction_count_) + " instructions");
}

void Program::parse_constants() {
    static const std::map<std::string, SectionType> kTypes = {
        {"float32", SectionType::kFloat32}, {"int64", SectionType::kInt32}, {"int32", SectionType::kInt32},
        {"bool", SectionType::kUint8},      {"uint8", SectionType::kUint8}, {"int8", SectionType::kInt8}};
    const json::Value* constants = meta_.find("constants");
    if (!constants) return;
    for (const auto& [name, value] : constants->as_object("meta.constants")) {
        const std::string where = "constants['" + name + "']";
        ConstantMeta constant;
        constant.section = value.at("section", "meta." + where).as_string("meta." + where + ".section");
        constant.shape = parse_shape(value.at("shape", "meta." + where), where + ".shape", false);
        constant.dtype = value.at("dtype", "meta." + where).as_string("meta." + where + ".dtype");
        const auto type = kTypes.find(constant.dtype);
        if (type == kTypes.end())
            fail(where + ".dtype", "expected float32, int64, int32, bool, uint8 or int8, found " + constant.dtype);
        const Section& section = file_->at(constant.section);
        if (section.type != type->second)
            fail(where, "section " + constant.section + " has another dtype than " + constant.dtype);
        const std::size_t item = type->second == SectionType::kFloat32 || type->second == SectionType::kInt32 ? 4 : 1;
        const auto expected = static_cast<std::size_t>(count_of(constant.shape)) * item;
        if (section.size != expected)
            fail(where, "section " + constant.section + " expected " + std::to_string(expected) + " bytes, found " +
                            std::to_string(section.size));
        constants_.emplace(name, std::move(constant));
    }
}

void Program::check_dataflow() const {
    std::set<std::string> known;
    for (const std::string& name : inputs_) {
        tensor(name);
        if (!known.insert(name).second) fail("inputs", "'" + name + "' occurs twice");
    }
    for (const auto& [name, constant] : constants_)
        if (!known.insert(name).second) fail("constants", "'" + name + "' is also an input");
    const auto need = [&known](const std::string& name, const std::string& where) {
        if (!known.count(name)) fail(where, "tensor '" + name + "' is read before anything writes it");
    };
    const auto define = [&known](const std::string& name, const std::string& where) {
        if (!known.insert(name).second) fail(where, "tensor '" + name + "' is written twice");
    };
    for (std::size_t i = 0; i < partitions_.size(); ++i) {
        const PartitionMeta& partition = partitions_[i];
        const std::string where = "partitions[" + std::to_string(i) + "]";
        for (const std::string& name : partition.inputs) need(name, where);
        for (const CpuNode& node : partition.nodes) {
            for (const std::string& name : node.inputs)
                if (!name.empty()) need(name, where + ", node '" + node.name + "'");
            for (const std::string& name : node.outputs)
                if (!name.empty()) define(name, where + ", node '" + node.name + "'");
        }
        for (const std::string& name : partition.outputs) {
            tensor(name);
            if (partition.npu)
                define(name, where);
            else
                need(name, where);
        }
    }
    for (const std::string& name : outputs_) {
        tensor(name);
        need(name, "outputs");
    }
}

DeviceProgram Program::device_program(const std::shared_ptr<const Program>& program) {
    DeviceProgram out;
    const Section& instructions = program->file_->at("instructions");
    out.image = program->file_->data();
    out.image_size = program->file_->size();
    out.instructions = reinterpret_cast<const std::uint32_t*>(out.image + instructions.offset);
    out.instruction_count = program->instruction_count_;
    out.pool_size = program->pool_size_;
    out.sram_bytes = program->sram_bytes_;
    out.pixel_parallel = static_cast<std::size_t>(program->meta_.at("arch", "meta")
                                                      .at("pixel_parallel", "meta.arch")
                                                      .as_integer("meta.arch.pixel_parallel", 1, 64));
    for (const std::string& feature :
         program->meta_.at("arch", "meta").at("features", "meta.arch").strings("meta.arch.features"))
        out.bf16 = out.bf16 || feature == "bf16";
    for (const PartitionMeta& partition : program->partitions_)
        if (partition.npu) out.partitions.push_back({partition.first_instruction, partition.instruction_count});
    out.owner = program;
    return out;
}

}  // namespace npuforge
