// Portability header: the only place that names a tool, a pragma or the standard library. Every other header of this
// folder compiles unchanged with g++/clang++ (C simulation), Vitis HLS and PandA-bambu (what each accepts: docs and
// README.md).
#pragma once

#include <stdint.h>

// clang-format off
#define NPU_PRAGMA_TEXT(x) _Pragma(#x)
#define NPU_PRAGMA(x) NPU_PRAGMA_TEXT(x)

#if defined(__SYNTHESIS__) && (defined(__VITIS_HLS__) || defined(__VIVADO_HLS__) || defined(__XILINX_HLS__))
// Vitis HLS: pragmas stand inside the loop body or function.
#define NPU_PIPELINE NPU_PRAGMA(HLS pipeline II=1)
#define NPU_UNROLL_NEXT
#define NPU_UNROLL NPU_PRAGMA(HLS unroll)
#define NPU_INLINE NPU_PRAGMA(HLS inline)
#define NPU_PARTITION(variable_, dim_) NPU_PRAGMA(HLS array_partition variable=variable_ dim=dim_ complete)
#define NPU_URAM(variable_) NPU_PRAGMA(HLS bind_storage variable=variable_ type=ram_t2p impl=uram)
#define NPU_TRIPCOUNT(min_, max_) NPU_PRAGMA(HLS loop_tripcount min=min_ max=max_)
#define NPU_AXI_MASTER(port_, bundle_) \
    NPU_PRAGMA(HLS interface mode=m_axi port=port_ bundle=bundle_ offset=slave max_widen_bitwidth=128 latency=64)
#define NPU_AXI_LITE(port_) NPU_PRAGMA(HLS interface mode=s_axilite port=port_)
#define NPU_AXI_LITE_RETURN NPU_PRAGMA(HLS interface mode=s_axilite port=return)
#define NPU_AXI_STREAM(port_) NPU_PRAGMA(HLS interface mode=axis port=port_)
#define NPU_MEMORY_PORT(port_) NPU_PRAGMA(HLS interface mode=bram port=port_ storage_type=ram_t2p)
#elif defined(__BAMBU__)
// bambu 2024.10: clang's unroll before the loop; pipeline only on functions. Its front end finds no function for a
// `HLS` pragma that comes out of a macro ("Unassociated HLS pragma"), so all ports are its own memory ports.
#define NPU_PIPELINE
#define NPU_UNROLL_NEXT NPU_PRAGMA(unroll)
#define NPU_UNROLL
#define NPU_INLINE
#define NPU_PARTITION(variable_, dim_)
#define NPU_URAM(variable_)
#define NPU_TRIPCOUNT(min_, max_)
#define NPU_AXI_MASTER(port_, bundle_)
#define NPU_AXI_LITE(port_)
#define NPU_AXI_LITE_RETURN
#define NPU_AXI_STREAM(port_)
#define NPU_MEMORY_PORT(port_)
#else
// Plain C++ compilers: C simulation.
#define NPU_PIPELINE
#define NPU_UNROLL_NEXT
#define NPU_UNROLL
#define NPU_INLINE
#define NPU_PARTITION(variable_, dim_)
#define NPU_URAM(variable_)
#define NPU_TRIPCOUNT(min_, max_)
#define NPU_AXI_MASTER(port_, bundle_)
#define NPU_AXI_LITE(port_)
#define NPU_AXI_LITE_RETURN
#define NPU_AXI_STREAM(port_)
#define NPU_MEMORY_PORT(port_)
#endif
// clang-format on

/// Leading zero bits of a 32-bit number that is not 0: a priority encoder.
inline uint32_t npu_leading_zeros(uint32_t value) { return (uint32_t)__builtin_clz(value); }

// Blocking streams, for sources that define NPU_USE_STREAMS: Vitis' own under Vitis, else one for threads of a test
// program.
#ifdef NPU_USE_STREAMS
#if defined(__VITIS_HLS__) || defined(__VIVADO_HLS__) || defined(__XILINX_HLS__)
#include <hls_stream.h>
template <class T>
using NpuStream = hls::stream<T>;
#else
#include <sched.h>
// Code that the thread sanitizer does not look at; it must not be inlined into code that it does look at.
#if defined(__clang__)
#define NPU_UNSEEN __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define NPU_UNSEEN __attribute__((noinline))
#endif
/// One writer, one reader, no lock: reading an item orders the reader after what the writer did before that item, and
/// nothing else, as a wire does. The thread sanitizer therefore sees every dependency that no token carries.
template <class T>
class NpuStream {
  public:
    NpuStream() : first_(new Node), last_(first_) {}
    NpuStream(const NpuStream&) = delete;
    NpuStream& operator=(const NpuStream&) = delete;
    ~NpuStream() {
        while (first_ != nullptr) {
            Node* next = first_->next;
            delete first_;
            first_ = next;
        }
    }
    void write(const T& value) {
        Node* node = new Node;
        node->value = value;
        __atomic_store_n(&last_->next, node, __ATOMIC_RELEASE);
        last_ = node;
    }
    T read() {
        wait();
        Node* next = __atomic_load_n(&first_->next, __ATOMIC_ACQUIRE);
        delete first_;
        first_ = next;
        return next->value;
    }

  private:
    struct Node {
        T value{};
        Node* next = nullptr;
    };
    /// Until an item is there. Unseen, because every look would push an access that matters out of the history from
    /// which the sanitizer reports races. Orders nothing by itself: `read` does.
    NPU_UNSEEN void wait() const {
        while (__atomic_load_n(&first_->next, __ATOMIC_RELAXED) == nullptr) sched_yield();
    }

    Node* first_;  // reader's side: the item read last
    Node* last_;   // writer's side
};
#endif
#endif
