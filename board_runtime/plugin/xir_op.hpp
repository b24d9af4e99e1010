// One operator of an .xmodel's CPU subgraph, computed by our CPU operators. Owns the translation of XIR operators and
// attributes to them; the arithmetic is hw_kernels/ops/*/cpu.hpp and border.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>
#include <xir/op/op.hpp>

#include "npuforge/border.hpp"
#include "npuforge/cpu.hpp"
#include "npuforge/open_rows.hpp"

namespace npuforge::plugin {

/// Custom operators (`onnx::<Type>`, `<domain>::<Type>`, `npuforge::Quantize`, `npuforge::Dequantize`) and the built-in
/// ones that our writer uses. `run` may be called by several threads. Where the data decide how many rows there are
/// (attribute `npuforge_open_shape`), buffers have room for the most there can be (open_rows.hpp).
class XirOp {
  public:
    /// Throws std::exception that names the operator where it is unknown or lacks an attribute.
    explicit XirOp(const xir::Op& op);
    XirOp(const XirOp&) = delete;
    XirOp& operator=(const XirOp&) = delete;

    /// `inputs`: the producers' contiguous data in the order of the arguments; `output`: room for the op's tensor.
    void run(const std::vector<const void*>& inputs, void* output) const;
    /// The producers, in the order of `run`.
    const std::vector<const xir::Op*>& producers() const { return producers_; }

    /// XIR operator types that `vart_op_imp` libraries are made for: all custom ones, and the built-in ones that the
    /// vendor has no implementation of.
    static std::vector<std::string> plug_in_types();

  private:
    enum class Kind { kKernel, kQuantise, kDequantise };
    /// Which axes of a tensor are open (-1; empty: none), and what is where no rows are.
    struct Open {
        std::vector<std::int64_t> declared;
        Filling filling = Filling::kPublic;
    };
    static Open open_of(const xir::Op& op);
    void describe_border(const xir::Op& op);
    void describe_kernel(const xir::Op& op);
    void describe_empty(const xir::Op& op);
    void gather(std::vector<cpu::Tensor>& given, std::vector<std::unique_ptr<char[]>>& memory) const;
    void run_kernel(std::vector<cpu::Tensor>& given, void* output) const;

    Kind kind_ = Kind::kKernel;
    std::string name_;
    std::vector<const xir::Op*> producers_;
    NpuTensor border_;  ///< quantise, dequantise: what the bytes mean
    std::size_t output_bytes_ = 0;

    CpuNode node_;
    cpu::Kernel kernel_;
    cpu::FusedActivation activation_;
    std::vector<int> positions_;               ///< of the producers among the node's inputs
    std::vector<cpu::Tensor> inputs_;          ///< by position; `data` of constants only
    std::vector<std::vector<char>> constant_;  ///< what they point to
    std::vector<bool> present_;
    std::vector<Open> open_;  ///< of the inputs, by position
    Open output_open_;
    cpu::Shape room_;  ///< the output's
    std::size_t output_index_ = 0, output_count_ = 1;
};

}  // namespace npuforge::plugin
