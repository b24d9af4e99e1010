"""NPU program of Conv: CONV, one per group if groups fill channel blocks, else dense with zero weights; DEPTHWISE where each channel reads itself.
A residual Add behind a Conv on the array is the last stage of its CONV instructions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import ConvParams
from npuforge.hw_kernels.arch import LANES
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.npu_int8 import ResidualSpec, StageSpec
from npuforge.hw_kernels.dsl.program import (
    Cut,
    LayerProgram,
    Packed,
    Work,
    lane_part,
    operand_records,
    requant_records,
    stage_arrays,
    stage_spec,
    tile,
)
from npuforge.hw_kernels.dsl.program_bf16 import bf16_arrays, bf16_spec
from npuforge.hw_kernels.dsl.tile import Image, LaneMap, Param, Tile, Window
from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE
from npuforge.hw_kernels.windows import Window as Attributes

SKIP = 1  # operand of a layer with a residual stage


def window_of(node: Node, kernel: tuple[int, int]) -> Window:
    """The node's sliding window."""
    a = Attributes.of(node)
    return Window(
        kernel[0], kernel[1], a.strides[0], a.strides[1], a.dilations[0], a.dilations[1], a.pads[0], a.pads[1]
    )


def dense_weight(weight: np.ndarray, groups: int, in_map: LaneMap, out_map: LaneMap) -> np.ndarray:
    """[O, kh, kw, I/groups] of logical channels -> [out lanes, kh, kw, in lanes] of one dense convolution."""
    outputs, kernel_h, kernel_w, per_in = weight.shape
    dense = np.zeros((out_map.blocks * LANES, kernel_h, kernel_w, in_map.blocks * LANES), weight.dtype)
    per_out = outputs // groups
    for g in range(groups):
        rows = out_map.lanes[g * per_out : (g + 1) * per_out]
        cols = in_map.lanes[g * per_in : (g + 1) * per_in]
        dense[rows[:, None], :, :, cols[None, :]] = weight[g * per_out : (g + 1) * per_out].transpose(0, 3, 1, 2)
    return dense


def block_groups(groups: int, in_map: LaneMap, out_map: LaneMap) -> list[tuple[int, int, int, int]] | None:
    """(first input block, blocks, first output block, blocks) of every group if each fills blocks of its own, else None."""
    if groups == 1:
        return None
    result = []
    for lanes_of in zip(np.split(in_map.lanes, groups), np.split(out_map.lanes, groups), strict=True):
        spans = []
        for lanes in lanes_of:
            first = int(lanes.min())
            if first % LANES or len(lanes) % LANES or not np.array_equal(lanes, np.arange(first, first + len(lanes))):
                return None
            spans += [first // LANES, len(lanes) // LANES]
        result.append((spans[0], spans[1], spans[2], spans[3]))
    return result


class ConvProgram(LayerProgram):
    """Cuts need all input blocks (except depthwise)."""

    @staticmethod
    def _params(work: Work) -> ConvParams:
        assert isinstance(work.params, ConvParams)
        return work.params

    def is_depthwise(self, work: Work) -> bool:
        """Channel c reads channel c only, and keeps its lane."""
        group = Attributes.of(work.node).group
        return group == len(work.in_maps[0].lanes) == len(work.out_map.lanes) and work.in_maps[0].same(work.out_map)

    def input_rows(self, work: Work, operand: int, low: int, high: int) -> tuple[int, int]:
        if operand == SKIP:
            return low, high
        kernel = self._params(work).weight.shape[1:3]
        return window_of(work.node, (kernel[0], kernel[1])).rows(low, high, work.in_sizes[0][0])

    def operand_blocks(self, work: Work, operand: int, cut: Cut) -> tuple[int, int]:
        same = operand == SKIP or self.is_depthwise(work)
        return (cut.first, cut.count) if same else (0, work.in_maps[0].blocks)

    def _groups(self, work: Work) -> list[tuple[int, int, int, int]]:
        """Block spans of the convolutions to run; one spanning everything if dense."""
        found = block_groups(Attributes.of(work.node).group, work.in_maps[0], work.out_map)
        return found or [(0, work.in_maps[0].blocks, 0, work.out_map.blocks)]

    def cut_bytes(self, work: Work, blocks: int) -> int:
        _, kernel_h, kernel_w, _ = self._params(work).weight.shape
        in_lanes = 1 if self.is_depthwise(work) else LANES * self._groups(work)[0][1]
        return blocks * LANES * kernel_h * kernel_w * in_lanes * self._params(work).weight.itemsize

    def macs(self, work: Work) -> int:
        return int(self._params(work).weight.size) * work.out_size[0] * work.out_size[1]

    def pack(self, work: Work) -> Packed:
        params, in_map, out_map = self._params(work), work.in_maps[0], work.out_map
        if isinstance(params.stage, Bf16Stage):
            packed = Packed(bf16_arrays(params.stage, out_map))
        else:
            packed = Packed(
                {
                    "bias": out_map.expand(np.asarray(params.bias, "<i4")),
                    **stage_arrays(params.stage, out_map),
                    "pad": in_map.expand(np.asarray(params.pad_value, np.int8)),
                }
            )
        if work.residual is not None:
            packed.common["operand"] = operand_records(work.residual.params, out_map)
            packed.common["sum"] = requant_records(work.residual.params.stage, out_map)
        if self.is_depthwise(work):
            lanes = out_map.expand(params.weight[..., 0]).transpose(1, 2, 0)
            packed.cuts = [
                np.ascontiguousarray(lanes[..., LANES * c.first : LANES * (c.first + c.count)]) for c in work.cuts
            ]
            return packed
        group = Attributes.of(work.node).group
        spans = block_groups(group, in_map, out_map)
        # With spans, every output lane holds its own group's input channels only.
        dense = out_map.expand(params.weight) if spans else dense_weight(params.weight, group, in_map, out_map)
        packed.cuts = [dense[LANES * c.first : LANES * (c.first + c.count)] for c in work.cuts]
        return packed

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        params = self._params(work)
        _, kernel_h, kernel_w, _ = params.weight.shape
        window = window_of(work.node, (kernel_h, kernel_w))
        if isinstance(params.stage, Bf16Stage):
            self._bf16(npu, work, params.stage, tile(x[0]), y, p, cut)
            return
        bias, stage = lane_part(p["bias"], cut, 4), stage_spec(params.stage, p, cut)
        if self.is_depthwise(work):
            npu.depthwise(tile(x[0]), y, window, p["weight"], bias, lane_part(p["pad"], cut, 1), stage)
            return
        residual = self._residual(work, x, p, cut)
        for in_first, in_count, part, weight in self._parts(work, p["weight"], cut):
            npu.conv(
                tile(x[0]).channel_blocks(in_first, in_count),
                y.channel_blocks(part.first, part.count),
                window,
                weight,
                lane_part(bias, part, 4),
                p["pad"].part(LANES * in_first, LANES * in_count, "pad bytes"),
                stage.part(part.first, part.count),
                residual.part(part.first, part.count) if residual else None,
            )

    def _parts(self, work: Work, weight: Param, cut: Cut) -> Iterator[tuple[int, int, Cut, Param]]:
        """First input block and number, output blocks counted from the cut's first, weights of every convolution that a cut takes part in."""
        _, kernel_h, kernel_w, _ = self._params(work).weight.shape
        for in_first, in_count, out_first, out_count in self._groups(work):
            first, end = max(out_first, cut.first), min(out_first + out_count, cut.first + cut.count)
            if first >= end:
                continue
            size = LANES * kernel_h * kernel_w * LANES * in_count * self._params(work).weight.itemsize
            part = Cut(0, first - cut.first, end - first)
            yield in_first, in_count, part, weight.part(part.first * size, part.count * size, "weights")

    def _bf16(self, npu: Npu, work: Work, stage: Bf16Stage, x: Tile, y: Tile, p: dict[str, Param], cut: Cut) -> None:
        _, kernel_h, kernel_w, _ = self._params(work).weight.shape
        window = window_of(work.node, (kernel_h, kernel_w))
        spec = bf16_spec(stage, p, cut.first, cut.count)
        if self.is_depthwise(work):
            npu.depthwise_bf16(x, y, window, p["weight"], spec)
            return
        for in_first, in_count, part, weight in self._parts(work, p["weight"], cut):
            source, target = x.channel_blocks(in_first, in_count), y.channel_blocks(part.first, part.count)
            npu.conv_bf16(source, target, window, weight, spec.part(part.first, part.count))

    @staticmethod
    def _residual(work: Work, x: list[Tile | Image], p: dict[str, Param], cut: Cut) -> ResidualSpec | None:
        if work.residual is None:
            return None
        stage = StageSpec.of(work.residual.params.stage, p["sum"], None).part(cut.first, cut.count)
        return ResidualSpec(tile(x[SKIP]), lane_part(p["operand"], cut, OPERAND_DTYPE.itemsize), stage)


CONV = ConvProgram()
