"""Blocks of channels that become blocks of pixels (DepthToSpace, in both orders and however written) as a transposed convolution with weights 0 and 1.

Window and stride are the block, so that every output pixel reads one input channel: exact in real arithmetic, and in int8 one requantisation to the output
channel's scale. The array writes the pixels of each phase at their stride; nothing leaves the NPU for it.
"""

from __future__ import annotations

import math

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.rewrite import Editor

ZERO = -1
LANES = 16
ARRAY_MACS_PER_SECOND = 1.5e11  # the smaller of the named configurations: 512 a cycle at 300 MHz
CPU_SECONDS_PER_VALUE = 18e-9  # leave int8, move float32, come back: read and written at 1 GB/s


def phase_channels(numbers: np.ndarray, source: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray | None:
    """Input channel [C, b, b] of every output channel and phase, if `numbers` (element numbers of the source, [1, C, b*H, b*W]) spread channels over pixels."""
    _, _, height, width = source
    _, channels, out_h, out_w = shape
    block = out_h // height
    if block < 2 or out_h != block * height or out_w != block * width:
        return None
    split = numbers.reshape(channels, height, block, width, block).transpose(0, 2, 4, 1, 3)
    first = split[..., :1, :1]
    grid = np.arange(height)[:, None] * width + np.arange(width)[None, :]
    if (first == ZERO).any() or (first % (height * width)).any() or not np.array_equal(split, first + grid):
        return None
    return first[..., 0, 0] // (height * width)


def is_quicker(source: tuple[int, ...], channels: np.ndarray) -> bool:
    """Whether the array's products, most of them with 0, take less time than handing the map to the CPU and back."""
    outputs, block = channels.shape[0], channels.shape[1]
    lanes = [-(-count // LANES) * LANES for count in (source[1], outputs)]
    products = math.prod(source[2:]) * math.prod(lanes) * block * block
    return products / ARRAY_MACS_PER_SECOND < math.prod(source) * CPU_SECONDS_PER_VALUE


def add_transposed_convolution(
    editor: Editor, near: Node, name: str, source: str, target: str, channels: np.ndarray, sources: list[str]
) -> None:
    """Enters the layer that writes `target` from `source`."""
    outputs, block = channels.shape[0], channels.shape[1]
    weight = np.zeros((editor.shape(source)[1], outputs, block, block), np.float32)
    output, row, column = np.indices(channels.shape)
    weight[channels, output, row, column] = 1.0
    constants = [
        editor.add_constant(f"{name}/{label}", value)
        for label, value in (("weight", weight), ("bias", np.zeros(outputs, np.float32)))
    ]
    attrs = {"kernel_shape": [block, block], "strides": [block, block]}
    editor.add(Node(name, "ConvTranspose", [source, *constants], [target], attrs, sources=sources), near)
