// Prepares the CPU partitions: creates kernels, infers shapes, folds what is constant, plans the arena; then runs nodes
// in order.
#include "npuforge/cpu_plan.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

namespace npuforge {

using cpu::Args;
using cpu::Shape;
using cpu::Tensor;
using cpu::Type;

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxArena = std::size_t{1} << 33;

std::size_t align(std::size_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

[[noreturn]] void fail(const CpuNode& node, const std::string& message) {
    throw FormatError("meta: node '" + node.name + "' (" + node.op + "): " + message);
}

}  // namespace

std::size_t plan_offsets(std::vector<CpuPlan::Placement>& buffers, std::size_t alignment) {
    std::vector<std::size_t> order(buffers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return buffers[a].size > buffers[b].size; });
    std::vector<const CpuPlan::Placement*> placed;  // `placed` by offset
    std::size_t peak = 0;
    for (const std::size_t index : order) {
        CpuPlan::Placement& buffer = buffers[index];
        std::size_t offset = 0;
        for (const CpuPlan::Placement* other : placed) {
            if (other->last < buffer.first || buffer.last < other->first) continue;
            if (offset + buffer.size <= other->offset) break;
            offset = std::max(offset, (other->offset + other->size + alignment - 1) / alignment * alignment);
        }
        buffer.offset = offset;
        peak = std::max(peak, offset + buffer.size);
        const auto at = std::upper_bound(placed.begin(), placed.end(), &buffer,
                                         [](const auto* a, const auto* b) { return a->offset < b->offset; });
        placed.insert(at, &buffer);
    }
    return (peak + alignment - 1) / alignment * alignment;
}

CpuPlan::CpuPlan(std::shared_ptr<const Program> program)
    : program_(std::move(program)), nodes_(program_->partitions().size()) {
    load_constants();
    const auto& partitions = program_->partitions();
    // Tensors that only pass from one NPU partition to another stay in the pool and have no float32 form.
    // So have network inputs that only the NPU reads.
    std::set<std::string> wanted(program_->outputs().begin(), program_->outputs().end());
    const std::set<std::string> given(program_->inputs().begin(), program_->inputs().end());
    for (const PartitionMeta& partition : partitions)
        for (const CpuNode& node : partition.nodes) wanted.insert(node.inputs.begin(), node.inputs.end());
    // Steps: 0 the network's inputs arrive; one per NPU partition and one per CPU node; the last one hands out the
    // outputs.
    for (const std::string& name : program_->inputs()) {
        const TensorMeta& meta = program_->tensor(name);
        const int tensor = add(name, cpu::type_of(meta.dtype, "meta.tensors['" + name + "']"), Shape(meta.shape));
        if (wanted.count(name)) touch(tensor, 0);
    }
    int step = 1;
    for (std::size_t p = 0; p < partitions.size(); ++p) {
        if (partitions[p].npu) {
            for (const std::string& name : partitions[p].inputs)
                if (wanted.count(name) || !given.count(name)) touch(find(name), step);
            for (const std::string& name : partitions[p].outputs) {
                const TensorMeta& meta = program_->tensor(name);
                if (wanted.count(name)) touch(add(name, Type::kFloat32, Shape(meta.shape)), step);
            }
            ++step;
        } else {
            for (const CpuNode& node : partitions[p].nodes) prepare_node(p, node, step++);
        }
    }
    for (const std::string& name : program_->outputs()) touch(find(name), step);
    place();
}

int CpuPlan::add(const std::string& name, Type type, const Shape& shape) {
    const int index = static_cast<int>(slots_.size());
    if (!index_.emplace(name, index).second) throw FormatError("meta: tensor '" + name + "' is written twice");
    Slot slot;
    slot.name = name;
    slot.prototype.type = type;
    slot.prototype.shape = shape;
    slot.root = index;
    slots_.push_back(std::move(slot));
    return index;
}

int CpuPlan::find(const std::string& name) const {
    const auto it = index_.find(name);
    return it == index_.end() ? -1 : it->second;
}

void CpuPlan::touch(int tensor, int step) {
    if (tensor < 0) return;
    Slot& root = slots_[static_cast<std::size_t>(slots_[static_cast<std::size_t>(tensor)].root)];
    root.first = std::min(root.first, step);
    root.last = std::max(root.last, step);
}

void CpuPlan::load_constants() {
    for (const auto& [name, meta] : program_->constants()) {
        const Section& section = program_->file().at(meta.section);
        const int index = add(name, cpu::type_of(meta.dtype, "meta.constants['" + name + "']"), Shape(meta.shape));
        Tensor& tensor = slots_[static_cast<std::size_t>(index)].prototype;
        tensor.constant = true;
        const std::uint8_t* data = program_->file().data() + section.offset;
        if (tensor.type == Type::kInt64) {  // stored as int32
            const std::int64_t count = tensor.shape.count();
            constants_.push_back(std::make_unique<std::uint8_t[]>(static_cast<std::size_t>(count) * 8 + 8));
            auto* wide = reinterpret_cast<std::int64_t*>(constants_.back().get());
            for (std::int64_t i = 0; i < count; ++i) wide[i] = reinterpret_cast<const std::int32_t*>(data)[i];
            tensor.data = wide;
        } else {
            tensor.data = const_cast<std::uint8_t*>(data);  // never written: kernels only write their outputs
        }
    }
}

void CpuPlan::prepare_node(std::size_t partition, const CpuNode& meta, int step) {
    const cpu::NodeInfo info(meta);
    const cpu::Factory* factory = cpu::Registry::instance().find(meta.op);
    if (!factory)
        throw Error("node '" + meta.name + "': operator " + meta.op +
                    " is not known to the CPU partition; add hw_kernels/ops/<op>/cpu.hpp");
    Node node;
    node.meta = &meta;
    node.kernel = (*factory)(info);
    node.activation = cpu::FusedActivation(meta);
    node.first_input = input_list_.size();
    node.first_output = output_list_.size();
    std::vector<const Tensor*> inputs;
    std::vector<Tensor> results(meta.outputs.size());
    std::vector<Tensor*> outputs;
    bool constant = true, dynamic = node.kernel.dynamic;
    for (const std::string& name : meta.inputs) {
        const int tensor = name.empty() ? -1 : find(name);
        if (!name.empty() && tensor < 0) fail(meta, "input '" + name + "' is not computed");
        input_list_.push_back(tensor);
        if (tensor < 0) {
            inputs.push_back(nullptr);
            continue;
        }
        const Slot& slot = slots_[static_cast<std::size_t>(tensor)];
        inputs.push_back(&slot.prototype);
        constant = constant && slot.prototype.constant;
        dynamic = dynamic || slot.dynamic;
    }
    for (Tensor& result : results) outputs.push_back(&result);
    const Args args{inputs.data(), inputs.size(), outputs.data(), outputs.size(), nullptr};
    cpu::infer(info, node.kernel, args);
    node.input_count = inputs.size();
    node.output_count = outputs.size();
    node.dynamic = dynamic;
    if (!node.activation.empty() && results[0].type != Type::kFloat32)
        fail(meta, "a fused activation needs a float32 result");
    for (std::size_t i = 0; i < meta.outputs.size(); ++i) {
        // An output nobody asked for still needs memory: kernels write all of theirs.
        const std::string name =
            meta.outputs[i].empty() ? "(" + meta.name + ", output " + std::to_string(i) + ")" : meta.outputs[i];
        const auto known = program_->tensors().find(name);
        if (known != program_->tensors().end() && !dynamic) {
            if (Shape(known->second.shape) != results[i].shape)
                fail(meta, "output '" + name + "' has shape " + results[i].shape.text() + ", meta.tensors says " +
                               Shape(known->second.shape).text());
            if (cpu::type_of(known->second.dtype, "meta.tensors['" + name + "']") != results[i].type)
                fail(meta, "output '" + name + "' is " + cpu::type_name(results[i].type) + ", meta.tensors says " +
                               known->second.dtype);
        }
        const int tensor = add(name, results[i].type, results[i].shape);
        slots_[static_cast<std::size_t>(tensor)].dynamic = dynamic;
        output_list_.push_back(tensor);
    }
    // Adding slots may have moved the prototypes: take the addresses again.
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const int tensor = input_list_[node.first_input + i];
        if (tensor >= 0) inputs[i] = &slots_[static_cast<std::size_t>(tensor)].prototype;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
        outputs[i] = &slots_[static_cast<std::size_t>(output_list_[node.first_output + i])].prototype;
    const Args settled{inputs.data(), inputs.size(), outputs.data(), outputs.size(), nullptr};
    if (node.kernel.scratch) node.scratch_bytes = align(node.kernel.scratch(settled));
    if ((constant || node.kernel.shape_only) && !dynamic) {
        fold(node, inputs, outputs);
    } else {
        const bool view = node.kernel.alias && node.activation.empty();
        if (node.kernel.alias && !view) fail(meta, "a fused activation behind a view is not supported");
        if (view)
            slots_[static_cast<std::size_t>(output_list_[node.first_output])].root =
                slots_[static_cast<std::size_t>(input_list_[node.first_input])].root;
        for (std::size_t i = 0; i < inputs.size(); ++i) touch(input_list_[node.first_input + i], step);
        for (std::size_t i = 0; i < outputs.size(); ++i) touch(output_list_[node.first_output + i], step);
        if (node.scratch_bytes > 0) scratch_.push_back({meta.name, 0, node.scratch_bytes, step, step});
    }
    nodes_[partition].push_back(std::move(node));
}

void CpuPlan::fold(Node& node, const std::vector<const Tensor*>& inputs, const std::vector<Tensor*>& outputs) {
    for (Tensor* output : outputs) {
        output->constant = true;
        if (node.kernel.alias) {
            output->data = inputs[0]->data;
            continue;
        }
        constants_.push_back(std::make_unique<std::uint8_t[]>(output->bytes() + 8));
        output->data = constants_.back().get();
    }
    const auto scratch = std::make_unique<std::uint8_t[]>(node.scratch_bytes + 1);
    const Args args{inputs.data(), inputs.size(), outputs.data(), outputs.size(), scratch.get()};
    node.kernel.run(args);
    if (!node.activation.empty()) node.activation.apply(*outputs[0]);
    node.folded = true;
}

void CpuPlan::place() {
    std::vector<Placement> buffers;
    std::vector<std::size_t> owners;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        Slot& slot = slots_[i];
        if (slot.prototype.constant || slot.root != static_cast<int>(i) || slot.last < 0) continue;
        slot.stored = true;
        buffers.push_back({slot.name, 0, std::max<std::size_t>(slot.prototype.bytes(), 1), slot.first, slot.last});
        owners.push_back(i);
    }
    const std::size_t tensors = buffers.size();
    buffers.insert(buffers.end(), scratch_.begin(), scratch_.end());
    arena_bytes_ = plan_offsets(buffers, kAlignment);
    if (arena_bytes_ > kMaxArena) throw Error("the CPU partitions need " + std::to_string(arena_bytes_) + " bytes");
    for (std::size_t i = 0; i < tensors; ++i) slots_[owners[i]].offset = buffers[i].offset;
    std::size_t next = tensors;
    for (auto& partition : nodes_)
        for (Node& node : partition)
            if (!node.folded && node.scratch_bytes > 0) node.scratch_offset = buffers[next++].offset;
    for (std::size_t i = 0; i < scratch_.size(); ++i) scratch_[i] = buffers[tensors + i];
}

std::vector<CpuPlan::Placement> CpuPlan::placements() const {
    std::vector<Placement> out = scratch_;
    for (const Slot& slot : slots_)
        if (slot.stored)
            out.push_back(
                {slot.name, slot.offset, std::max<std::size_t>(slot.prototype.bytes(), 1), slot.first, slot.last});
    return out;
}

CpuPlan::Bindings CpuPlan::bind(std::uint8_t* arena) const {
    Bindings bindings;
    for (const Slot& slot : slots_) {
        bindings.tensors.push_back(slot.prototype);
        if (slot.stored) bindings.tensors.back().data = arena + slot.offset;
    }
    for (const int tensor : input_list_)
        bindings.inputs.push_back(tensor < 0 ? nullptr : &bindings.tensors[static_cast<std::size_t>(tensor)]);
    for (const int tensor : output_list_)
        bindings.outputs.push_back(&bindings.tensors[static_cast<std::size_t>(tensor)]);
    return bindings;
}

void CpuPlan::run(Bindings& bindings, std::size_t partition, std::uint8_t* arena) const {
    for (const Node& node : nodes_[partition]) {
        if (node.folded) continue;
        const Args args{bindings.inputs.data() + node.first_input, node.input_count,
                        bindings.outputs.data() + node.first_output, node.output_count, arena + node.scratch_offset};
        if (node.dynamic) node.kernel.shape(args);
        if (node.kernel.alias) {
            args.out().data = args.in(0).data;
            continue;
        }
        node.kernel.run(args);
        if (!node.activation.empty()) node.activation.apply(args.out());
    }
}

}  // namespace npuforge
