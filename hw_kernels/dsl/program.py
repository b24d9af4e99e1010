"""What an operator's program is: how its parameters are laid out in lanes (`pack`), which input rows a band needs, which instructions make a band.

A program works on one *band* (output rows) and one *cut* (output channel blocks) at a time; where bands and cuts lie, what is in SRAM and
what streams from the pool is decided by `compile/steps/tile.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import InstructionError
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import EltwiseParams, NodeParams, OutputStage
from npuforge.hw_kernels.arch import LANES, Arch
from npuforge.hw_kernels.dsl.instr import Instr
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.npu_int8 import TABLE_BYTES, StageSpec
from npuforge.hw_kernels.dsl.tile import POOL, SRAM, Buffer, Dtype, Image, LaneMap, Param, Tile, whole_map
from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE
from npuforge.hw_kernels.timing import Cost, cost

_SCRATCH = 1 << 40  # bytes of a buffer that is only counted with


@dataclass(frozen=True)
class Cut:
    """Output channel blocks first .. first + count; `index` counts cuts."""

    index: int
    first: int
    count: int


@dataclass(frozen=True)
class Residual:
    """An Add that is the residual stage of the convolution before it. Operand a of `params` is the convolution's output, b the skip tensor."""

    node: Node
    params: EltwiseParams


@dataclass
class Work:
    """One layer as its program sees it: the node, its parameters per logical channel, sizes and lane maps of its operands. With `residual`, the
    skip tensor is the last operand, and the output is the sum."""

    node: Node
    params: NodeParams
    in_maps: list[LaneMap]
    out_map: LaneMap
    in_sizes: list[tuple[int, int]]
    out_size: tuple[int, int]
    bands: list[tuple[int, int]] = field(default_factory=list)  # output rows low..high of each
    cuts: list[Cut] = field(default_factory=list)
    image_channels: int = 0  # not 0: operand 0 is a tight image of so many channels
    dtype: Dtype = Dtype.INT8  # of the operands and the output
    residual: Residual | None = None
    cache: dict[str, Any] = field(default_factory=dict)  # for the program's own use

    @property
    def out_blocks(self) -> int:
        """Channel blocks of the output."""
        return self.out_map.blocks


@dataclass
class Packed:
    """Parameter arrays as they lie in SRAM. `common`: needed by every instruction; `cuts`: weights, one array per cut."""

    common: dict[str, np.ndarray] = field(default_factory=dict)
    cuts: list[np.ndarray] = field(default_factory=list)


class LayerProgram:
    """Base of all programs. Stateless: one object serves all nodes of its operator."""

    def input_rows(self, work: Work, operand: int, low: int, high: int) -> tuple[int, int]:
        """Rows of an operand that output rows low..high need. Default: the same rows, or the only one."""
        return (0, 1) if work.in_sizes[operand][0] == 1 and work.out_size[0] != 1 else (low, high)

    def operand_blocks(self, work: Work, operand: int, cut: Cut) -> tuple[int, int]:
        """First block and number of blocks of an operand that a cut needs. Default: the same blocks as the output."""
        return cut.first, cut.count

    def pack(self, work: Work) -> Packed:
        """The parameter arrays for the layer's cuts and bands."""
        return Packed()

    def cut_bytes(self, work: Work, blocks: int) -> int:
        """Bytes of the weights of a cut of `blocks` blocks."""
        return 0

    def temporary_bytes(self, work: Work) -> int:
        """Bytes that a band of the program holds at one time besides operands and output (`Npu.map`), at most."""
        return 0

    def repeats(self, work: Work) -> bool:
        """Does every band do work over, such as the reduction of a whole map? Then the fewer bands the better."""
        return False

    def macs(self, work: Work) -> int:
        """Multiply-accumulates of the logical operator (no padding lanes, no skipped taps)."""
        return 0

    def whole(self, work: Work) -> list[Instr]:
        """The instructions of the whole layer as one band and one cut, on scratch buffers: what its cost is counted on."""
        scratch, image = Buffer("scratch", _SCRATCH, SRAM), Buffer("image", _SCRATCH, POOL)
        saved = work.bands, work.cuts
        work.bands, work.cuts = [(0, work.out_size[0])], [Cut(0, 0, work.out_blocks)]
        x: list[Tile | Image] = [
            Image(image, 0, *size, work.image_channels, size[1] * work.image_channels * work.dtype.bytes, work.dtype)
            if work.image_channels and number == 0
            else whole_map(scratch, *size, lanes.blocks, dtype=work.dtype)
            for number, (size, lanes) in enumerate(zip(work.in_sizes, work.in_maps, strict=True))
        ]
        p = {name: Param(scratch, 0, array.nbytes) for name, array in self.pack(work).common.items()}
        p["weight"] = Param(scratch, 0, self.cut_bytes(work, work.out_blocks))
        npu = Npu()
        self(npu, work, x, whole_map(scratch, *work.out_size, work.out_blocks, dtype=work.dtype), p, work.cuts[0])
        work.bands, work.cuts = saved
        return npu.instructions

    def cost(self, work: Work, arch: Arch) -> Cost:
        """Cycles of the layer's own engine, DDR traffic of folded images, multiply-accumulates, without loads and stores of operands."""
        parts = [
            cost(i.name, {k: v for k, v in i.fields.items() if isinstance(v, int)}, arch) for i in self.whole(work)
        ]
        return Cost(*(sum(getattr(part, key) for part in parts) for key in ("cycles", "beats", "ddr_bytes", "macs")))

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        """Emit the instructions of one band and cut. x: the rows held of each operand; y: the band's output; p: parameters in SRAM,
        `weight` being the cut's."""
        raise NotImplementedError


def requant_records(stage: OutputStage, out_map: LaneMap) -> np.ndarray:
    """REQUANT_RECORD of every lane, pad lanes 0."""
    channels = len(out_map.lanes)
    records = np.zeros(channels, REQUANT_DTYPE)
    low = np.full(channels, -128, np.int8) if stage.low is None else stage.low
    high = np.full(channels, 127, np.int8) if stage.high is None else stage.high
    if stage.kind != "direct":
        records["m0"], records["m1"] = stage.m_pos, stage.m_neg
    records["s0"], records["z"] = stage.shift, stage.zero_point
    if stage.kind == "table":
        records["a"] = stage.shift2
    else:
        records["a"], records["b"] = low, high
    return out_map.expand(records)


def stage_arrays(stage: OutputStage, out_map: LaneMap) -> dict[str, np.ndarray]:
    """The sections of an output stage: `requant`, and `table` where there is one."""
    arrays = {"requant": requant_records(stage, out_map)}
    if stage.kind == "table":
        assert stage.table is not None and stage.table.nbytes == TABLE_BYTES
        arrays["table"] = np.asarray(stage.table, "<i2")
    return arrays


def stage_spec(stage: OutputStage, p: dict[str, Param], cut: Cut) -> StageSpec:
    """The output stage of the cut's blocks."""
    return StageSpec.of(stage, p["requant"], p.get("table")).part(cut.first, cut.count)


def lane_part(param: Param, cut: Cut, lane_bytes: int) -> Param:
    """The cut's part of an array with `lane_bytes` bytes per lane."""
    return param.part(cut.first * LANES * lane_bytes, cut.count * LANES * lane_bytes, "per-lane parameters")


def operand_records(params: EltwiseParams, out_map: LaneMap) -> np.ndarray:
    """OPERAND_RECORD of every lane, pad lanes 0."""
    records = np.zeros(len(out_map.lanes), OPERAND_DTYPE)
    records["ma"], records["za"] = params.m_a, params.z_a
    records["mb"], records["zb"] = params.m_b, params.z_b
    return out_map.expand(records)


def tile(operand: Tile | Image) -> Tile:
    """The operand as a tile; images can only be folded."""
    if isinstance(operand, Image):
        raise InstructionError(f"image {operand.buffer.name}: only LOAD_FOLD reads a tight image")
    return operand


def program_of(node: Node) -> LayerProgram:
    """The program of a node's operator."""
    from npuforge.hw_kernels.operator import get

    program = get(node).program
    if not isinstance(program, LayerProgram):
        raise InstructionError(
            f"node {node.name}: operator {node.op} has no NPU program; place it on the CPU partition"
        )
    return program
