// Stand-in: a stream, as far as a plug-in passes one on.
#pragma once
struct CUstream_st;
using cudaStream_t = CUstream_st*;
