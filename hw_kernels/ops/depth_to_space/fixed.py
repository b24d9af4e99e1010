"""DepthToSpace on bytes or bf16 bits [H, W, C], as kernel.hpp has it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.kernel_data import nothing_to_do, padded, real, store
from npuforge.hw_kernels.operator import HlsKernel, KernelCase, KernelForm, KernelRun

MAX_CHANNELS = 1024


def moved(x: np.ndarray, block: int, column_row: bool) -> np.ndarray:
    """[H*block, W*block, C] of [H, W, C*block*block], by ONNX's reshape and transpose."""
    height, width, depth = x.shape
    channels = depth // (block * block)
    if column_row:
        split = x.reshape(height, width, channels, block, block).transpose(0, 3, 1, 4, 2)
    else:
        split = x.reshape(height, width, block, block, channels).transpose(0, 2, 1, 3, 4)
    return split.reshape(height * block, width * block, channels)


def _case(random: np.random.Generator) -> KernelCase:
    height, width, channels, block = (int(v) for v in random.integers(1, 5, 4))
    x = random.integers(-128, 128, (height, width, channels * block * block)).astype(np.int8)
    expected = moved(x, block, column_row := bool(random.integers(0, 2)))
    return [x, height, width, channels, block, int(column_row), np.zeros_like(expected)], [expected]


KERNEL = HlsKernel(f"depth_to_space<{MAX_CHANNELS}>", ("const int8_t*", *["int32_t"] * 5, "int8_t*"), _case)


def _on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Bits are moved. An output channel has pixels of several input channels, so that in `fine` the tensor has one scale."""
    if not np.size(inputs[0]):
        return nothing_to_do(node, inputs)
    x, block = store(inputs[0], 1, mode, uniform=True), int(node.attrs["blocksize"])
    column_row = node.attrs.get("mode", "DCR") == "CRD"
    y = np.stack([moved(image, block, column_row) for image in x.bits])
    _, height, width, _ = x.bits.shape
    channels = y.shape[-1]
    calls: list[KernelCase] = []
    for image, out in zip(x.lanes, padded(y), strict=True):
        sizes = [image.shape[-1], height, width, channels, block, int(column_row), out.shape[-1]]
        calls.append(([image, *sizes, np.zeros_like(out)], [out]))
    quant = dataclasses.replace(x.quant, scale=x.quant.scale[:channels], zero_point=x.quant.zero_point[:channels])
    return KernelRun(calls, [x.real], [real(y, quant, 1)], [0.0])


def _form(element: str) -> KernelForm:
    bounds = {1: (0, 11), 2: (0, 1025), 3: (0, 1025), 4: (0, 1025), 5: (0, 17), 7: (0, 2)}
    arguments = (f"const {element}*", *["int32_t"] * 7, f"{element}*")
    return KernelForm(f"depth_to_space_lanes<{MAX_CHANNELS}, {element}>", arguments, _on_the_npus_data, bounds)


KERNEL_INT8, KERNEL_BF16 = _form("int8_t"), _form("uint16_t")
