"""NPU program of SpaceToDepth: LOAD_FOLD on an image, else (compile/steps/lanes.py) a moving convolution with stride = block size."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import ConvParams
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Work
from npuforge.hw_kernels.dsl.tile import Dtype, Image, Param, Tile, Window
from npuforge.hw_kernels.ops.channel_gather.program import moving_convolution


def as_convolution(node: Node, channels_in: int, dtype: Dtype = Dtype.INT8) -> tuple[Node, ConvParams]:
    """The same movement as a convolution: output channel (by, bx, c) copies tap (by, bx) of channel c."""
    block = int(node.attrs["blocksize"])
    taps = np.array([(by, bx, c) for by in range(block) for bx in range(block) for c in range(channels_in)])
    zeros = np.zeros(len(taps), np.int64)
    x, y = node.inputs[0], node.outputs[0]
    return moving_convolution(node.name, x, y, taps, block, channels_in, zeros, node.sources, dtype)


class FoldProgram(LayerProgram):
    """Image bytes to lanes (by, bx, channel); block size 1 gives an ordinary feature map."""

    def operand_blocks(self, work: Work, operand: int, cut: Cut) -> tuple[int, int]:
        return 0, 1

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        block = int(work.node.attrs["blocksize"])
        image = x[0]
        assert isinstance(image, Image)
        npu.load_fold(image, y, Window(block, block, block, block), np.zeros(image.channels, np.int8))


SPACE_TO_DEPTH = FoldProgram()
