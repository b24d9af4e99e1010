"""A traced kernel as a layer program like the built-in operators' (`KernelProgram`), and the operator class around it (`KernelOp`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from npuforge.compile.ir.errors import InstructionError, ModelError
from npuforge.compile.ir.graph import Activation, Node
from npuforge.compile.ir.quantization import KernelParams, QGraph
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.bf16_lanes import in_lanes
from npuforge.hw_kernels.dsl.kernel import Kernel, optimise
from npuforge.hw_kernels.dsl.kernel_interpreter import run_bf16, run_int8
from npuforge.hw_kernels.dsl.kernel_lowering import Emitter, pack_bf16, pack_int8
from npuforge.hw_kernels.dsl.kernel_maps import Rows, Size, check_channels, placed, rows_needed
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Packed, Work, tile
from npuforge.hw_kernels.dsl.tile import Dtype, Image, LaneMap, Param, Tile
from npuforge.hw_kernels.dsl.trace import WINDOWED, Trace, one_channel
from npuforge.hw_kernels.operator import Op, Shape

ALIGNMENT = 64


class KernelProgram(LayerProgram):
    """The instructions of each operation that the optimiser leaves; values in between lie in temporary tiles."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def optimised(self, node: Node, dtype: Dtype = Dtype.BF16) -> Trace:
        """The instructions' program, with the node's attributes in it."""
        own = {k: v for k, v in node.attrs.items() if k in self.kernel.attributes}
        return _optimised(self.kernel, tuple(sorted(own.items())), dtype)

    def over(self, node: Node, dtype: Dtype, sizes: list[Size]) -> tuple[Trace, list[Size]]:
        """The same over maps of these sizes, and the sizes of all values."""
        return placed(self.optimised(node, dtype), sizes)

    def _placed(self, work: Work) -> tuple[Trace, list[Size]]:
        if "placed" not in work.cache:
            work.cache["placed"] = self.over(work.node, work.dtype, work.in_sizes)
        found: tuple[Trace, list[Size]] = work.cache["placed"]
        return found

    def _rows(self, work: Work, low: int, high: int) -> list[Rows]:
        trace, sizes = self._placed(work)
        return rows_needed(trace, sizes, low, high)

    def input_rows(self, work: Work, operand: int, low: int, high: int) -> tuple[int, int]:
        trace, _ = self._placed(work)
        (value,) = [i for i, o in enumerate(trace.operations) if o.kind == "input" and o.a == operand]
        return self._rows(work, low, high)[value]

    def _blocks(self, work: Work, cut: Cut) -> list[Cut]:
        """The channel blocks that each value is computed for: those of the cut, all where channels are summed later, or the one of a sum."""
        trace, _ = self._placed(work)
        single, wide = one_channel(trace), [False] * len(trace.operations)
        for index in range(len(wide) - 1, -1, -1):
            o = trace.operations[index]
            for value in o.reads:
                wide[value] |= wide[index] or o.kind == "channel_sum"
        whole, one = Cut(0, 0, work.out_blocks), Cut(0, 0, 1)
        found: list[Cut] = []
        for index, o in enumerate(trace.operations):
            own = one if single[index] else whole if wide[index] else cut
            found.append(found[o.a] if o.kind == "scale" else own)
        return found

    def operand_blocks(self, work: Work, operand: int, cut: Cut) -> tuple[int, int]:
        trace, _ = self._placed(work)
        (value,) = [i for i, o in enumerate(trace.operations) if o.kind == "input" and o.a == operand]
        blocks = self._blocks(work, cut)[value]
        return blocks.first, blocks.count

    def temporary_bytes(self, work: Work) -> int:
        """The most that lives at one time in any band."""
        trace, sizes = self._placed(work)
        steps = [i for i, o in enumerate(trace.operations) if o.kind not in ("input", "scale")]
        last = {self._root(trace, v): i for i in steps for v in trace.operations[i].reads}
        largest = self._blocks(work, max(work.cuts, key=lambda cut: cut.count))
        most = 0
        for band in work.bands:
            rows = rows_needed(trace, sizes, *band)
            pixels = {i: (rows[i][1] - rows[i][0]) * sizes[i][1] for i in steps}
            size = {
                i: -(-pixels[i] * largest[i].count * work.dtype.block_bytes // ALIGNMENT) * ALIGNMENT for i in steps
            }
            for i in steps:
                held = sum(size[j] for j in steps if j <= i <= last.get(j, j) and j != trace.result)
                most = max(most, held + (2 * size[i] + ALIGNMENT if trace.operations[i].kind == "max2" else 0))
        return most

    def repeats(self, work: Work) -> bool:
        trace, sizes = self._placed(work)
        return any(o.kind in WINDOWED and o.window.kernel[0] == sizes[o.a][0] > 1 for o in trace.operations)

    @staticmethod
    def _root(trace: Trace, value: int) -> int:
        while trace.operations[value].kind == "scale":
            value = trace.operations[value].a
        return value

    def pack(self, work: Work) -> Packed:
        trace, _ = self._placed(work)
        arrays: dict[str, np.ndarray] = {}
        lanes = [LaneMap.identity(1) if single else work.out_map for single in one_channel(trace)]
        for i, o in enumerate(trace.operations):
            if o.kind == "input":
                continue
            if work.dtype == Dtype.BF16:
                own = pack_bf16(o, lanes[i], lanes[o.a])
            else:
                assert isinstance(work.params, KernelParams)
                own = pack_int8(o, work.params, str(i), lanes[i], lanes[o.a])
            arrays |= {f"s{i}_{name}": array for name, array in own.items()}
        return Packed(arrays)

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        trace, sizes = self._placed(work)
        rows = self._rows(work, y.first_row, y.end_row)
        params = work.params if isinstance(work.params, KernelParams) else None
        blocks, single = self._blocks(work, cut), one_channel(trace)
        tiles: dict[int, Tile] = {}
        for i, o in enumerate(trace.operations):
            if o.kind == "input":
                tiles[i] = tile(x[o.a])
            elif o.kind == "scale":
                tiles[i] = tiles[o.a]
            else:
                (height, width), (low, high), here = sizes[i], rows[i], blocks[i]
                tiles[i] = y if i == trace.result else npu.map(high - low, width, here.count, y.dtype, low, height)
                own = {k.removeprefix(f"s{i}_"): v for k, v in p.items() if k.startswith(f"s{i}_")}
                emitter = Emitter(npu, here, 1 if single[i] else len(work.out_map.lanes), params)
                operands = [tiles[v] for v in o.reads]
                if o.kind != "channel_sum":
                    operands = [
                        t if single[v] else _part(t, blocks[v], here) for v, t in zip(o.reads, operands, strict=True)
                    ]
                emitter.broadcast = 0 if o.b >= 0 and single[o.b] and not single[i] else None
                emitter.emit(o, str(i), own, operands[0], operands[1] if o.b >= 0 else None, tiles[i])

    def bits(self, node: Node, inputs: list[np.ndarray]) -> np.ndarray:
        """The interpreter: bf16 bits [H, W, C] of the optimised program, operation by operation, channel c in lane c."""
        return self.bits_in(node, inputs, LaneMap.identity(inputs[0].shape[-1]))

    def bits_in(self, node: Node, inputs: list[np.ndarray], lanes: LaneMap) -> np.ndarray:
        """The same with channels in `lanes`, which decides what a sum over channels adds first."""
        trace, _ = self.over(node, Dtype.BF16, [(x.shape[0], x.shape[1]) for x in inputs])
        return run_bf16(trace, inputs, lanes)

    def integers(self, node: Node, inputs: list[np.ndarray], params: KernelParams) -> np.ndarray:
        """The interpreter in int8, [N, H, W, C]."""
        trace, _ = self.over(node, Dtype.INT8, [(x.shape[1], x.shape[2]) for x in inputs])
        return run_int8(trace, inputs, params)


def _part(held: Tile, blocks: Cut, wanted: Cut) -> Tile:
    """The wanted channel blocks of a tile that holds `blocks`."""
    return held if blocks.count == wanted.count else held.channel_blocks(wanted.first - blocks.first, wanted.count)


@lru_cache(maxsize=256)
def _optimised(kernel: Kernel, attributes: tuple[tuple[str, Any], ...], dtype: Dtype) -> Trace:
    try:
        return optimise(kernel.trace(dict(attributes), dtype))
    except InstructionError as problem:
        other = Dtype.INT8 if dtype == Dtype.BF16 else Dtype.BF16
        try:
            kernel.trace(dict(attributes), other)
        except InstructionError:
            raise problem from None
        words = {
            Dtype.BF16: "bf16: use --precision bf16 with an arch that has it",
            Dtype.INT8: "int8: leave out --precision bf16",
        }
        raise InstructionError(f"{problem}; as it stands the program is for {words[other]}") from None


class KernelOp(Op):
    """Base of an operator whose program is a kernel: shape, meaning, int8 and bf16 bits come from the program. Subclasses give `names` and
    `pixel_kernel`."""

    pixel_kernel: ClassVar[Kernel]
    constraints = (c.feature_maps, c.map_sizes)
    no_gradient = "its program is for inference"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.attributes = cls.pixel_kernel.attributes
        cls.program = KernelProgram(cls.pixel_kernel)
        cls.cost = cls.program.cost

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        kernel = self.pixel_kernel
        maps = len(shapes) == kernel.inputs and all(len(s) == 4 and s[:2] == shapes[0][:2] for s in shapes)
        if not maps:
            raise ModelError(
                f"node {node.name}: {kernel.name} takes {kernel.inputs} maps N, C, H, W of equal N and C, found {shapes}; check the model's inputs"
            )
        meaning = kernel.meaning(node.attrs)
        check_channels(meaning, shapes[0][1])
        trace, sizes = placed(meaning, [(s[2], s[3]) for s in shapes])
        return [(*shapes[0][:2], *sizes[trace.result])]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        assert node.activation.kind == Activation().kind
        return [self.pixel_kernel.meaning(node.attrs).meaning(inputs)]

    def refusal(self, level: str) -> str:
        dtype = {"int8": Dtype.INT8, "bf16": Dtype.BF16}.get(level)
        for case in self.cases if dtype else ():
            try:
                _optimised(self.pixel_kernel, tuple(sorted(case.attrs.items())), dtype)
            except InstructionError as problem:
                return str(problem)
        return ""

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        params = qgraph.params[node.name]
        assert isinstance(params, KernelParams) and isinstance(self.program, KernelProgram)
        return self.program.integers(node, inputs, params)

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        assert isinstance(self.program, KernelProgram)
        channels = [x[..., lanes.lanes] for x, lanes in zip(inputs, work.in_maps, strict=True)]
        return in_lanes(self.program.bits_in(work.node, channels, work.out_map), work.out_map)
