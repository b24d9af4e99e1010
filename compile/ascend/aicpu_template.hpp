// CANN's AI CPU over the CPU kernels of the operator folders (hw_kernels/ops/<op>/cpu.hpp): attributes, tensors and
// shapes of a call. `Read` gives an attribute; which operators there are is the includer's affair.

namespace npuforge::aicpu {

enum class Kind { kInt, kFloat, kInts, kFloats };

struct Attribute {
    const char* name;
    Kind kind;
};

/// One operator of a network.
struct Signature {
    const char* op;  ///< domain::type
    std::size_t inputs, outputs;
    std::vector<Attribute> attributes;
};

template <class List>
json::Value list_of(const List& values) {
    json::Array array;
    for (const auto value : values) {
        if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>)
            array.emplace_back(static_cast<double>(value));
        else
            array.emplace_back(static_cast<std::int64_t>(value));
    }
    return json::Value(std::move(array));
}

/// A call's kernel and tensors. `read(attribute)`: its value, null where the call lacks it.
class Call {
  public:
    template <class Read>
    Call(const Signature& signature, Read read) : in_(signature.inputs), out_(signature.outputs) {
        node_.name = node_.op = signature.op;
        for (std::size_t i = 0; i < signature.inputs; ++i) node_.inputs.push_back("x" + std::to_string(i));
        for (std::size_t i = 0; i < signature.outputs; ++i) node_.outputs.push_back("y" + std::to_string(i));
        json::Object attributes;
        for (const Attribute& attribute : signature.attributes) {
            json::Value value = read(attribute);
            if (!value.is_null()) attributes.emplace(attribute.name, std::move(value));
        }
        node_.attrs = json::Value(std::move(attributes));
        const cpu::Factory* factory = cpu::Registry::instance().find(node_.op);
        if (!factory) throw Error("operator " + node_.op + " is not part of this library");
        kernel_ = (*factory)(cpu::NodeInfo(node_));
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    cpu::Tensor& in(std::size_t i) { return in_.at(i); }
    cpu::Tensor& out(std::size_t i) { return out_.at(i); }
    bool dynamic() const { return kernel_.dynamic; }
    /// The axis of outputs of this rank that only the data decide, where dynamic.
    std::size_t open_axis(int rank) const {
        return static_cast<std::size_t>(kernel_.open_axis < 0 ? kernel_.open_axis + rank : kernel_.open_axis);
    }

    /// Types and shapes of the outputs, from those of the inputs; the most where the data decide.
    void infer() {
        places_.clear();
        for (const cpu::Tensor& tensor : in_) inputs_.push_back(&tensor);
        for (cpu::Tensor& tensor : out_) places_.push_back(&tensor);
        args_ = cpu::Args{inputs_.data(), inputs_.size(), places_.data(), places_.size(), nullptr};
        cpu::infer(cpu::NodeInfo(node_), kernel_, args_);
    }
    /// After `infer` and with data in every tensor.
    void run() {
        std::vector<std::uint8_t> scratch(kernel_.scratch ? kernel_.scratch(args_) : 0);
        args_.scratch = scratch.data();
        kernel_.run(args_);
        if (kernel_.alias) std::memcpy(out_[0].data, in_[0].data, in_[0].bytes());
    }

  private:
    CpuNode node_;
    cpu::Kernel kernel_;
    std::vector<cpu::Tensor> in_, out_;
    std::vector<const cpu::Tensor*> inputs_;
    std::vector<cpu::Tensor*> places_;
    cpu::Args args_;
};

}  // namespace npuforge::aicpu
