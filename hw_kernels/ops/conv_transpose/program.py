"""NPU program of ConvTranspose: one CONV per output phase (row and column modulo stride), each with the taps that meet real pixels.

The taps a phase skips would read stuffed zeros, stored as the zero point: their sum of weight times zero point goes into the phase's bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import ConvParams
from npuforge.hw_kernels.arch import LANES
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Packed, Work, lane_part, stage_arrays, stage_spec, tile
from npuforge.hw_kernels.dsl.program_bf16 import bf16_arrays, bf16_spec
from npuforge.hw_kernels.dsl.tile import Image, Param, Tile, Window
from npuforge.hw_kernels.ops.conv.program import dense_weight
from npuforge.hw_kernels.windows import Window as Attributes


@dataclass(frozen=True)
class AxisPhase:
    """One residue of the output position along one axis: its taps, and the stride-1 window over the real input they form."""

    residue: int
    taps: tuple[int, ...]
    dilation: int
    pad: int


def axis_phases(kernel: int, stride: int, dilation: int, pad: int) -> list[AxisPhase]:
    """All residues; out position stride*m + r, tap t meets input position m + (r + t*dilation - P)/stride, P = (kernel-1)*dilation - pad."""
    border = (kernel - 1) * dilation - pad
    result = []
    for residue in range(stride):
        taps = tuple(t for t in range(kernel) if (residue + t * dilation - border) % stride == 0)
        step = dilation // gcd(stride, dilation)
        first = -(residue + taps[0] * dilation - border) // stride if taps else 0
        result.append(AxisPhase(residue, taps, step, first))
    return result


def phases(node: Node, kernel: tuple[int, int]) -> list[tuple[AxisPhase, AxisPhase]]:
    """Row and column phase of every output residue."""
    a = Attributes.of(node)
    rows, cols = (axis_phases(kernel[i], a.strides[i], a.dilations[i], a.pads[i]) for i in (0, 1))
    return [(row, col) for row in rows for col in cols]


def _window(row: AxisPhase, col: AxisPhase) -> Window:
    if not row.taps or not col.taps:  # no tap: a 1x1 window with zero weights
        return Window()
    return Window(len(row.taps), len(col.taps), 1, 1, row.dilation, col.dilation, row.pad, col.pad)


class ConvTransposeProgram(LayerProgram):
    """Weights of a cut: phase after phase."""

    def operand_blocks(self, work: Work, operand: int, cut: Cut) -> tuple[int, int]:
        return 0, work.in_maps[0].blocks

    @staticmethod
    def _params(work: Work) -> ConvParams:
        assert isinstance(work.params, ConvParams)
        return work.params

    def _phases(self, work: Work) -> list[tuple[AxisPhase, AxisPhase]]:
        _, kernel_h, kernel_w, _ = self._params(work).weight.shape
        return phases(work.node, (kernel_h, kernel_w))

    def input_rows(self, work: Work, operand: int, low: int, high: int) -> tuple[int, int]:
        stride, height = Attributes.of(work.node).strides[0], work.in_sizes[0][0]
        ranges = []
        for row, col in self._phases(work):
            first, end = -(-(low - row.residue) // stride), -(-(high - row.residue) // stride)
            if end > first:
                ranges.append(_window(row, col).rows(first, end, height))
        return min(r[0] for r in ranges), max(r[1] for r in ranges)

    def cut_bytes(self, work: Work, blocks: int) -> int:
        taps = sum(w.kernel_h * w.kernel_w for w in (_window(r, c) for r, c in self._phases(work)))
        return blocks * LANES * taps * LANES * work.in_maps[0].blocks * self._params(work).weight.itemsize

    def macs(self, work: Work) -> int:
        return int(self._params(work).weight.size) * work.in_sizes[0][0] * work.in_sizes[0][1]

    def pack(self, work: Work) -> Packed:
        params, in_map, out_map = self._params(work), work.in_maps[0], work.out_map
        group = Attributes.of(work.node).group
        dense = dense_weight(params.weight, group, in_map, out_map)
        weights = []
        for row, col in self._phases(work):
            taps = dense[:, list(row.taps)][:, :, list(col.taps)]
            weights.append(taps if taps.size else np.zeros((dense.shape[0], 1, 1, dense.shape[3]), dense.dtype))
        cut_arrays = []
        for cut in work.cuts:
            lanes = slice(LANES * cut.first, LANES * (cut.first + cut.count))
            cut_arrays.append(np.concatenate([np.ascontiguousarray(w[lanes]).ravel() for w in weights]))
        if isinstance(params.stage, Bf16Stage):
            return Packed(bf16_arrays(params.stage, out_map), cut_arrays)
        pad = in_map.expand(np.asarray(params.pad_value, np.int8))
        at_pad = dense.astype(np.int64) @ pad.astype(np.int64)  # [out lanes, kh, kw]
        biases = []
        for row, col in self._phases(work):
            met = at_pad[:, list(row.taps)][:, :, list(col.taps)].sum(axis=(1, 2))
            skipped = at_pad.sum(axis=(1, 2)) - met
            biases.append((out_map.expand(params.bias.astype(np.int64)) + skipped).astype("<i4"))
        common = {"bias": np.concatenate(biases), **stage_arrays(params.stage, out_map), "pad": pad}
        return Packed(common, cut_arrays)

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        stride_h, stride_w = Attributes.of(work.node).strides
        stage = self._params(work).stage
        lanes_out, lanes_in = LANES * work.out_map.blocks, LANES * work.in_maps[0].blocks
        position = 0
        for number, (row, col) in enumerate(self._phases(work)):
            window = _window(row, col)
            size = cut.count * LANES * window.kernel_h * window.kernel_w * lanes_in * self._params(work).weight.itemsize
            weight = p["weight"].part(position, size, "weights")
            position += size
            target = y.phase(row.residue, col.residue, stride_h, stride_w)
            if target is None:
                continue
            if isinstance(stage, Bf16Stage):
                if not row.taps or not col.taps:  # right of the map: the sum is +0 whatever the map holds
                    window = replace(window, pad_left=-work.in_sizes[0][1])
                npu.conv_bf16(tile(x[0]), target, window, weight, bf16_spec(stage, p, cut.first, cut.count))
                continue
            bias = lane_part(p["bias"].part(4 * lanes_out * number, 4 * lanes_out, "bias"), cut, 4)
            npu.conv(tile(x[0]), target, window, weight, bias, p["pad"], stage_spec(stage, p, cut))


CONV_TRANSPOSE = ConvTransposeProgram()
