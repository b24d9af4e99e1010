// See plugin_runner.hpp.
#include "plugin_runner.hpp"

#include <algorithm>
#include <any>
#include <chrono>
#include <iostream>
#include <stdexcept>

#include "npuforge/program.hpp"
#include "npuforge/session.hpp"
#include "npuforge/whole_numbers.hpp"
#include "xir_border.hpp"

namespace npuforge::plugin {

namespace {

using Parameters = std::map<std::string, std::vector<char>>;

constexpr char kParameters[] = "reg_id_to_parameter_value";
constexpr char kPartition[] = "npuforge_partition";

template <typename T>
T attribute(const xir::Subgraph& subgraph, const std::string& key) {
    if (!subgraph.has_attr(key)) {
        throw std::invalid_argument("subgraph " + subgraph.get_name() + ": no attribute " + key +
                                    "; compile the network with npuforge");
    }
    const xir::any value = subgraph.get_attr(key);
    const T* typed = std::any_cast<T>(&value);
    if (!typed)
        throw std::invalid_argument("subgraph " + subgraph.get_name() + ": attribute " + key + " has another type");
    return *typed;
}

// The .bin, which every DPU subgraph of the graph carries.
std::vector<char> binary_of(const xir::Subgraph& subgraph) {
    const xir::Subgraph* holder = &subgraph;
    if (!subgraph.has_attr(kParameters)) {
        for (const xir::Subgraph* child : subgraph.get_root()->get_children()) {
            if (child->has_attr(kParameters)) holder = child;
        }
    }
    Parameters parameters = attribute<Parameters>(*holder, kParameters);
    const auto found = parameters.find("REG_0");
    if (found == parameters.end() || found->second.empty()) {
        throw std::invalid_argument("subgraph " + holder->get_name() + ": " + kParameters +
                                    " has no REG_0; compile the network with npuforge");
    }
    return std::move(found->second);
}

// Without a DPU subgraph the file holds no .bin.
bool has_binary(const xir::Subgraph& subgraph) {
    if (subgraph.has_attr(kParameters)) return true;
    for (const xir::Subgraph* child : subgraph.get_root()->get_children()) {
        if (child->has_attr(kParameters)) return true;
    }
    return false;
}

std::vector<Port> ports_of(const std::vector<const xir::Tensor*>& tensors) {
    std::vector<Port> ports;
    for (const xir::Tensor* tensor : tensors) {
        const xir::Op* producer = tensor->get_producer();
        ports.push_back({tensor->get_name(), at_border(*tensor), producer && producer->get_fanout_num() > 0});
    }
    return ports;
}

}  // namespace

struct PluginRunner::Job {
    std::vector<std::vector<BatchItem>> items;  ///< per native job: inputs, then outputs
    std::vector<std::uint32_t> native;          ///< jobs not yet waited for
    int status = NativeRunner::kOk;
};

PluginRunner::PluginRunner(const xir::Subgraph* subgraph, const std::string& mode) {
    if (!subgraph) throw std::invalid_argument("create_runner: no subgraph was given");
    if (mode != "run" && mode != "sim" && mode != "csim") {
        throw std::invalid_argument("create_runner: mode: expected run, sim or csim, found '" + mode + "'");
    }
    name_ = subgraph->get_name();
    inputs_ = subgraph->get_sorted_input_tensors();
    outputs_ = subgraph->get_sorted_output_tensors();
    const bool npu = attribute<std::string>(*subgraph, "device") == "DPU";
    if (!npu && !(subgraph->has_attr(kPartition) && has_binary(*subgraph))) {
        ops_ = std::make_unique<OpSequence>(*subgraph);
        return;
    }
    const int partition = attribute<std::int32_t>(*subgraph, kPartition);
    const std::vector<char> bytes = binary_of(*subgraph);
    SessionOptions options;
    options.device = mode == "csim" ? "csim" : "sim";
    const auto file = BinFile::parse(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    const Ports ports = {ports_of(inputs_), ports_of(outputs_)};
    try {
        native_ = std::make_unique<NativeRunner>(std::make_shared<Session>(Program::parse(file), options), partition, 1,
                                                 &ports);
    } catch (const FormatError& error) {
        throw std::invalid_argument("subgraph " + name_ + ": " + error.what());
    }
}

PluginRunner::~PluginRunner() { native_.reset(); }  // joins the workers while the jobs' memory still exists

void PluginRunner::add_items(Job& job, const std::vector<vart::TensorBuffer*>& buffers,
                             const std::vector<const xir::Tensor*>& tensors, bool input) const {
    const char* what = input ? "input" : "output";
    for (std::size_t index = 0; index < tensors.size(); ++index) {
        const std::string tensor = tensors[index]->get_name();
        const auto named = [&](vart::TensorBuffer* buffer) {
            return buffer && buffer->get_tensor()->get_name() == tensor;
        };
        const auto found = std::find_if(buffers.begin(), buffers.end(), named);
        if (found == buffers.end()) {
            throw std::invalid_argument(std::string(what) + " " + tensor + ": no buffer has a tensor of this name");
        }
        if (std::any_of(found + 1, buffers.end(), named)) {
            throw std::invalid_argument(std::string(what) + " " + tensor + ": two buffers have a tensor of this name");
        }
        const std::vector<std::int32_t> own = tensors[index]->get_shape();
        const std::vector<std::int32_t> given = (*found)->get_tensor()->get_shape();
        if (given.size() != own.size() || given.empty() || !std::equal(own.begin() + 1, own.end(), given.begin() + 1) ||
            given[0] % own[0] != 0 || given[0] <= 0) {
            throw std::invalid_argument(std::string(what) + " " + tensor +
                                        ": the buffer's shape differs from the tensor's in more than the batch");
        }
        const auto batches = static_cast<std::size_t>(given[0] / own[0]);
        if (job.items.empty()) job.items.resize(batches);
        if (job.items.size() != batches) {
            throw std::invalid_argument(std::string(what) + " " + tensor + ": batch of " + std::to_string(batches) +
                                        ", other buffers have " + std::to_string(job.items.size()));
        }
        for (std::size_t batch = 0; batch < batches; ++batch) {
            job.items[batch].emplace_back(**found, tensor, static_cast<int>(batch) * own[0], own[0], input);
        }
    }
}

std::pair<std::uint32_t, int> PluginRunner::execute_async(const std::vector<vart::TensorBuffer*>& input,
                                                          const std::vector<vart::TensorBuffer*>& output) {
    auto job = std::make_unique<Job>();
    std::uint32_t id = 0;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        id = next_;
        next_ = next_ == 0x7fffffff ? 1 : next_ + 1;
    }
    try {
        add_items(*job, input, inputs_, true);
        add_items(*job, output, outputs_, false);
        for (std::vector<BatchItem>& items : job->items) {
            if (ops_) {
                run_ops(items);
                continue;
            }
            std::vector<TensorBuffer*> inputs, outputs;
            for (std::size_t i = 0; i < items.size(); ++i) {
                (i < inputs_.size() ? inputs : outputs).push_back(&items[i].native());
            }
            const auto [native, status] = native_->execute_async(inputs, outputs);
            if (status != NativeRunner::kOk) {
                for (const std::uint32_t queued : job->native) native_->wait(static_cast<int>(queued), -1);
                throw std::invalid_argument(native_->message(native));
            }
            job->native.push_back(native);
        }
    } catch (const std::exception& error) {
        std::cerr << "npuforge-runner: subgraph " << name_ << ": " << error.what() << '\n';
        return {id, NativeRunner::kFailed};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.emplace(id, std::move(job));
    return {id, NativeRunner::kOk};
}

void PluginRunner::run_ops(std::vector<BatchItem>& items) const {
    std::map<std::string, void*> data;
    std::vector<std::vector<std::uint8_t>> converted(items.size());
    const auto tensor_of = [&](std::size_t i) -> const xir::Tensor& {
        return *(i < inputs_.size() ? inputs_[i] : outputs_[i - inputs_.size()]);
    };
    for (std::size_t i = 0; i < items.size(); ++i) {
        const xir::Tensor& tensor = tensor_of(i);
        const TensorBuffer& buffer = items[i].native();
        const Element own = element_of(tensor), given = {buffer.type, buffer.bf16};
        data[tensor.get_name()] = buffer.data;
        if (given == own) continue;
        if (!(given == Element{})) {
            throw std::invalid_argument("tensor " + tensor.get_name() + ": type expected " + own.name() +
                                        " or float32, found " + given.name());
        }
        const auto count = static_cast<std::size_t>(buffer.shape.count());
        converted[i].resize(count * own.bytes());
        data[tensor.get_name()] = converted[i].data();
        if (i >= inputs_.size()) continue;
        const auto* values = static_cast<const float*>(buffer.data);
        if (at_border(tensor)) {
            const NpuTensor border = border_tensor(tensor);
            quantise(border, tensor.get_name(), values, MapStrides::nhwc(border), converted[i].data());
        } else {
            whole_numbers(own.type, tensor.get_name(), values, converted[i].data(), count);
        }
    }
    ops_->run(data);
    for (std::size_t i = inputs_.size(); i < items.size(); ++i) {
        if (converted[i].empty()) continue;
        const xir::Tensor& tensor = tensor_of(i);
        const TensorBuffer& buffer = items[i].native();
        auto* values = static_cast<float*>(buffer.data);
        if (at_border(tensor)) {
            const NpuTensor border = border_tensor(tensor);
            dequantise(border, converted[i].data(), values, MapStrides::nhwc(border));
        } else {
            whole_floats(element_of(tensor).type, tensor.get_name(), converted[i].data(), values,
                         static_cast<std::size_t>(buffer.shape.count()));
        }
    }
}

int PluginRunner::finish(Job& job, int timeout) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(timeout, 0));
    while (!job.native.empty()) {
        int left = timeout;
        if (timeout > 0) {
            const auto rest =
                std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
            left = static_cast<int>(std::max<std::int64_t>(rest.count(), 0));
        }
        const std::uint32_t native = job.native.back();
        const int status = native_->wait(static_cast<int>(native), left);
        if (status == NativeRunner::kTimeout) return status;
        job.native.pop_back();
        if (status != NativeRunner::kOk) {
            std::cerr << "npuforge-runner: subgraph " << name_ << ": " << native_->message(native) << '\n';
            job.status = status;
        }
    }
    if (job.status != NativeRunner::kOk) return job.status;
    try {
        for (std::vector<BatchItem>& items : job.items) {
            for (std::size_t i = inputs_.size(); i < items.size(); ++i) items[i].flush();
        }
    } catch (const std::exception& error) {
        std::cerr << "npuforge-runner: subgraph " << name_ << ": " << error.what() << '\n';
        return NativeRunner::kFailed;
    }
    return NativeRunner::kOk;
}

int PluginRunner::wait(int jobid, int timeout) {
    std::unique_ptr<Job> job;
    std::uint32_t id = 0;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = jobid < 0 ? jobs_.begin() : jobs_.find(static_cast<std::uint32_t>(jobid));
        if (found == jobs_.end()) return NativeRunner::kUnknownJob;
        id = found->first;
        job = std::move(found->second);
        jobs_.erase(found);
    }
    const int status = finish(*job, timeout);
    if (status == NativeRunner::kTimeout) {  // still running: the job can be waited for again
        const std::lock_guard<std::mutex> lock(mutex_);
        jobs_.emplace(id, std::move(job));
    }
    return status;
}

std::vector<vart::TensorBuffer*> PluginRunner::owned(const std::vector<const xir::Tensor*>& tensors,
                                                     std::vector<std::unique_ptr<HostBuffer>>& buffers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (buffers.empty()) {
        for (const xir::Tensor* tensor : tensors) buffers.push_back(std::make_unique<HostBuffer>(tensor));
    }
    std::vector<vart::TensorBuffer*> result;
    for (const auto& buffer : buffers) result.push_back(buffer.get());
    return result;
}

std::vector<vart::TensorBuffer*> PluginRunner::get_inputs() { return owned(inputs_, own_inputs_); }

std::vector<vart::TensorBuffer*> PluginRunner::get_outputs() { return owned(outputs_, own_outputs_); }

}  // namespace npuforge::plugin
