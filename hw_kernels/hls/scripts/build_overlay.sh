#!/bin/bash
# NOT RUN in this project (no Vitis at hand): written from the vendor's documentation, see ../README.md.
#
#   hw_kernels/hls/scripts/build_overlay.sh nf-b4096 /path/to/platform.xpfm
#
# Synthesises npu_top, packages it as a kernel whose registers the runtime drives itself (user_managed: XRT's xrt::ip), and links an overlay.
set -euo pipefail
arch=${1:?arch, for example nf-b4096}
platform=${2:?platform file .xpfm}
cd "$(dirname "$0")/../../.."
for tool in vitis_hls vivado v++ unzip; do
    command -v "$tool" > /dev/null || { echo "error: $tool is not on PATH; source the Vitis settings first" >&2; exit 1; }
done
out=.native-build/hls
mkdir -p "$out"
PYTHONPATH=src python3 -m npuforge.hw_kernels.isa.generate --header "$out/npu_isa.hpp"
NPU_ARCH=$arch NPU_TOP=npu_top vitis_hls -f hw_kernels/hls/scripts/vitis_hls.tcl
rm -rf "$out/$arch-ip" && mkdir "$out/$arch-ip" && unzip -q "$out/$arch-npu_top.zip" -d "$out/$arch-ip"
vivado -mode batch -source hw_kernels/hls/scripts/package_kernel.tcl -tclargs "$out/$arch-ip" "$out/$arch.xo"
v++ --link --target hw --platform "$platform" --config hw_kernels/hls/scripts/link.cfg --output "$out/$arch.xsa" "$out/$arch.xo"
v++ --package --target hw --platform "$platform" --output "$out/$arch.xclbin" "$out/$arch.xsa"
echo "$out/$arch.xclbin"
