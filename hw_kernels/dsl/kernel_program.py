"""A traced kernel on the NPU and in numpy: `KernelProgram` is a layer program like the built-in operators', `KernelOp` the operator class around it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.compile.ir.graph import Activation, Node
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.bf16_lanes import in_lanes
from npuforge.hw_kernels.bf16_stage import output_stage
from npuforge.hw_kernels.dsl.kernel import Kernel, Operation, Trace, optimise
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Packed, Work, lane_part, tile
from npuforge.hw_kernels.dsl.program_bf16 import bf16_arrays, bf16_spec
from npuforge.hw_kernels.dsl.tile import Image, Param, Tile
from npuforge.hw_kernels.isa.instructions import EltwiseKind
from npuforge.hw_kernels.operator import Op, Shape

_KINDS = {"add": EltwiseKind.ADD, "sub": EltwiseKind.SUB, "mul": EltwiseKind.MUL}


def stage_of(operation: Operation, channels: int) -> Bf16Stage:
    """The output stage of one operation, the same for every channel."""
    return output_stage(operation.activation, np.full(channels, operation.bias))


class KernelProgram(LayerProgram):
    """One ELTWISE_BF16 for each operation that the optimiser leaves; values in between lie in temporary tiles."""

    pixelwise: ClassVar[bool] = True

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def optimised(self, node: Node) -> Trace:
        """The instructions' program, with the node's attributes in it."""
        return _optimised(
            self.kernel, tuple(sorted((k, v) for k, v in node.attrs.items() if k in self.kernel.attributes))
        )

    def temporaries(self, work: Work) -> int:
        """Temporary tiles alive at one time."""
        operations, result = self._steps(work.node)
        last = {v: i for i, o in operations for v in o.reads}
        alive = [sum(1 for j, _ in operations if j <= i < last.get(j, j) + 1 and j != result) for i, _ in operations]
        return max(alive, default=0)

    def _steps(self, node: Node) -> tuple[list[tuple[int, Operation]], int]:
        """Numbered operations that compute, and the result's number."""
        trace = self.optimised(node)
        return [(i, o) for i, o in enumerate(trace.operations) if o.kind != "input"], trace.result

    def pack(self, work: Work) -> Packed:
        arrays: dict[str, np.ndarray] = {}
        channels = len(work.out_map.lanes)
        for i, o in self._steps(work.node)[0]:
            arrays |= {f"s{i}_{k}": v for k, v in bf16_arrays(stage_of(o, channels), work.out_map).items()}
            if o.kind == "affine":
                arrays[f"s{i}_factor"] = work.out_map.expand(np.full(channels, o.factor, "<f4"))
        return Packed(arrays)

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        trace = self.optimised(work.node)
        channels = len(work.out_map.lanes)
        tiles: dict[int, Tile] = {}
        for i, o in enumerate(trace.operations):
            if o.kind == "input":
                tiles[i] = tile(x[o.a])
                continue
            own = {k.removeprefix(f"s{i}_"): v for k, v in p.items() if k.startswith(f"s{i}_")}
            spec = bf16_spec(stage_of(o, channels), own, cut.first, cut.count)
            target = y if i == trace.result else npu.temporary(y)
            if o.kind == "affine":
                npu.affine_bf16(tiles[o.a], target, lane_part(own["factor"], cut, 4), spec)
            else:
                npu.eltwise_bf16(_KINDS[o.kind], tiles[o.a], tiles[o.b], target, spec)
            tiles[i] = target

    def bits(self, node: Node, inputs: list[np.ndarray]) -> np.ndarray:
        """The interpreter: bf16 bits [..., C] of the optimised program, operation by operation."""
        trace = self.optimised(node)
        values: list[np.ndarray] = []
        for o in trace.operations:
            if o.kind == "input":
                values.append(inputs[o.a])
                continue
            a = bf16.to_float32(values[o.a])
            if o.kind == "affine":
                d = bf16.multiply(a, np.float32(o.factor))
            else:
                function = {"add": bf16.add, "sub": bf16.subtract, "mul": bf16.multiply}[o.kind]
                d = function(a, bf16.to_float32(values[o.b]))
            values.append(bf16.apply_stage(d, stage_of(o, a.shape[-1])))
        return values[trace.result]


@lru_cache(maxsize=256)
def _optimised(kernel: Kernel, attributes: tuple[tuple[str, Any], ...]) -> Trace:
    return optimise(kernel.trace(dict(attributes)))


class KernelOp(Op):
    """Base of an operator whose program is a kernel: shape, meaning and bf16 bits come from the program. Subclasses give `names` and `kernel`."""

    pixel_kernel: ClassVar[Kernel]
    constraints = (c.feature_maps, c.map_sizes)
    no_gradient = "its program is for inference"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.program = KernelProgram(cls.pixel_kernel)
        cls.cost = cls.program.cost

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0]]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        assert node.activation.kind == Activation().kind
        return [self.pixel_kernel.trace(node.attrs).meaning(inputs)]

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        assert isinstance(self.program, KernelProgram)
        channels = [x[..., lanes.lanes] for x, lanes in zip(inputs, work.in_maps, strict=True)]
        return in_lanes(self.program.bits(work.node, channels), work.out_map)
