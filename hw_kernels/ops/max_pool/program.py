"""NPU program of MaxPool: POOL."""

from __future__ import annotations

from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Work, tile
from npuforge.hw_kernels.dsl.tile import Dtype, Image, Param, Tile, Window
from npuforge.hw_kernels.windows import Window as Attributes


def pool_window(work: Work) -> Window:
    """The node's sliding window."""
    a = Attributes.of(work.node)
    kernel_h, kernel_w = work.node.attrs["kernel_shape"]
    return Window(kernel_h, kernel_w, a.strides[0], a.strides[1], a.dilations[0], a.dilations[1], a.pads[0], a.pads[1])


class MaxPoolProgram(LayerProgram):
    """No parameters."""

    def input_rows(self, work: Work, operand: int, low: int, high: int) -> tuple[int, int]:
        return pool_window(work).rows(low, high, work.in_sizes[0][0])

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        if y.dtype == Dtype.BF16:
            npu.pool_bf16(tile(x[0]), y, pool_window(work))
        else:
            npu.max_pool(tile(x[0]), y, pool_window(work))


MAX_POOL = MaxPoolProgram()
