// Owns the marking of code for one instruction set. Between NPUFORGE_BEGIN_TARGET(avx2|avx512) and NPUFORGE_END_TARGET
// functions may use its intrinsics; everything included before keeps the baseline, so that no inline function of a
// header is compiled for a newer processor.
#pragma once

#define NPUFORGE_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define NPUFORGE_BEGIN_AVX2 \
    NPUFORGE_PRAGMA(clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function))
#define NPUFORGE_BEGIN_AVX512             \
    NPUFORGE_PRAGMA(clang attribute push( \
        __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), apply_to = function))
#define NPUFORGE_END_TARGET NPUFORGE_PRAGMA(clang attribute pop)
#else
// GCC regroups long integer sums into trees whose parts do not fit the registers; the accumulators are to stay as
// written.
#define NPUFORGE_BEGIN_AVX2                 \
    NPUFORGE_PRAGMA(GCC push_options)       \
    NPUFORGE_PRAGMA(GCC target("avx2,fma")) \
    NPUFORGE_PRAGMA(GCC optimize("no-tree-reassoc"))
// GCC 12 warns about its own intrinsics: _mm512_undefined_epi32() is a variable initialised with itself.
#define NPUFORGE_BEGIN_AVX512                                                             \
    NPUFORGE_PRAGMA(GCC push_options)                                                     \
    NPUFORGE_PRAGMA(GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")) \
    NPUFORGE_PRAGMA(GCC diagnostic ignored "-Wuninitialized")                             \
    NPUFORGE_PRAGMA(GCC diagnostic ignored "-Wmaybe-uninitialized")
#define NPUFORGE_END_TARGET NPUFORGE_PRAGMA(GCC pop_options)
#endif
