# NOT RUN in this project (no Vitis HLS at hand): written from the vendor's documentation, see ../README.md.
#
#   python -m npuforge.hw_kernels.isa.generate --header .native-build/hls/npu_isa.hpp
#   NPU_ARCH=nf-b4096 vitis_hls -f hw_kernels/hls/scripts/vitis_hls.tcl          (from the repository's root)
#
# C simulation of the testbench, C synthesis and IP export of the single-kernel top `npu_top`; NPU_TOP=npu_conv (npu_fetch, npu_load,
# npu_vector, npu_store) takes one engine of the multi-kernel overlay instead.
set arch [expr {[info exists ::env(NPU_ARCH)] ? $::env(NPU_ARCH) : "nf-b4096"}]
set top [expr {[info exists ::env(NPU_TOP)] ? $::env(NPU_TOP) : "npu_top"}]
set part [expr {[info exists ::env(NPU_PART)] ? $::env(NPU_PART) : "xczu9eg-ffvb1156-2-e"}]
array set pixels {nf-b1024 2 nf-b4096 8 nf-b1024-bf16 2 nf-b4096-bf16 8}
array set sram {nf-b1024 524288 nf-b4096 2097152 nf-b1024-bf16 524288 nf-b4096-bf16 2097152}
set bf16 [string match *-bf16 $arch]
if {![info exists pixels($arch)]} { error "NPU_ARCH: expected one of [array names pixels], found $arch" }

set hls hw_kernels/hls
set flags "-std=c++17 -I$hls -I.native-build/hls -DNPU_PIXEL_PARALLEL=$pixels($arch) -DNPU_SRAM_BYTES=$sram($arch) -DNPU_BF16=$bf16"
set source [expr {$top eq "npu_top" ? "$hls/npu_top.cpp" : "$hls/npu_overlay.cpp"}]

open_project -reset .native-build/hls/$arch-$top
set_top $top
add_files $source -cflags $flags
if {$top eq "npu_top"} { add_files -tb $hls/testbench/tb_npu_top.cpp -cflags $flags }
open_solution -reset solution -flow_target vivado
set_part $part
create_clock -period 3.333 -name default
if {$top eq "npu_top"} { csim_design }
csynth_design
if {$top eq "npu_top" && [info exists ::env(NPU_COSIM)]} { cosim_design }
export_design -format ip_catalog -output .native-build/hls/$arch-$top.zip
exit
