// Owns the AVX2 engines' table of contents.
#include "bf16_step.hpp"
#include "conv_step.hpp"
#include "depthwise_step.hpp"
#include "step.hpp"
#include "vector_step.hpp"

namespace npuforge::sim {
namespace avx2 {

const ConvKernel& conv_kernel();
const DepthwiseKernel& depthwise_kernel();
const VectorKernel& vector_kernel();
const Bf16Kernel& bf16();

}  // namespace avx2

namespace {

class Avx2Engine final : public Engine {
  public:
    std::unique_ptr<Step> conv(const ConvOp& op, const Constants& constants, PackCache& cache) const override {
        return make_conv_step(op, constants, cache, avx2::conv_kernel(), avx2::vector_kernel());
    }
    std::unique_ptr<Step> depthwise(const ConvOp& op, const Constants& constants, PackCache& cache) const override {
        return make_depthwise_step(op, constants, cache, avx2::depthwise_kernel());
    }
    std::unique_ptr<Step> pool(const PoolOp& op, const Constants& constants, PackCache& cache) const override {
        return make_pool_step(op, constants, cache, avx2::vector_kernel());
    }
    std::unique_ptr<Step> eltwise(const EltwiseOp& op, const Constants& constants, PackCache& cache) const override {
        return make_eltwise_step(op, constants, cache, avx2::vector_kernel());
    }
    std::unique_ptr<Step> resize(const ResizeOp& op, const Constants& constants, PackCache&) const override {
        return make_resize_step(op, constants, avx2::vector_kernel());
    }
    std::unique_ptr<Step> bf16(const Bf16ConvOp& op, const Constants& constants, PackCache& cache) const override {
        return make_bf16_step(op, constants, cache, avx2::bf16());
    }
    std::unique_ptr<Step> bf16(const Bf16PoolOp& op, const Constants& constants, PackCache& cache) const override {
        return make_bf16_step(op, constants, cache, avx2::bf16());
    }
    std::unique_ptr<Step> bf16(const Bf16EltwiseOp& op, const Constants& constants, PackCache& cache) const override {
        return make_bf16_step(op, constants, cache, avx2::bf16());
    }
    std::unique_ptr<Step> bf16(const Bf16ResizeOp& op, const Constants& constants, PackCache& cache) const override {
        return make_bf16_step(op, constants, cache, avx2::bf16());
    }
};

}  // namespace

const Engine& avx2_engine() {
    static const Avx2Engine engine;
    return engine;
}

}  // namespace npuforge::sim
