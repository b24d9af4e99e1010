"""What the back-end steps hand to each other: storages, places, layers (lanes → tile → plan_memory → generate). Owns no decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import NodeParams, QGraph
from npuforge.hw_kernels.arch import ADDRESS_ALIGNMENT, LANES, Arch
from npuforge.hw_kernels.dsl.program import Residual
from npuforge.hw_kernels.dsl.tile import Dtype, LaneMap, Window


def align(value: int, to: int = ADDRESS_ALIGNMENT) -> int:
    """`value` rounded up."""
    return -(-value // to) * to


@dataclass(eq=False)
class Storage:
    """Memory of one feature map, or of several as views (concat). `tight` > 0: an image of so many channels a pixel instead of lanes."""

    name: str
    height: int
    width: int
    blocks: int
    tight: int = 0
    dtype: Dtype = Dtype.INT8

    @property
    def pixel_stride(self) -> int:
        """Bytes from pixel to pixel."""
        return self.dtype.bytes * (self.tight or self.blocks * LANES)

    @property
    def row_stride(self) -> int:
        """Bytes from row to row."""
        return self.width * self.pixel_stride

    @property
    def size(self) -> int:
        """Bytes, aligned."""
        return align(self.height * self.row_stride)


@dataclass
class Place:
    """Where a tensor lies: channel blocks of a storage, and its lanes counted from the first of them.

    `segments`, where given: the blocks are not one run but several, (first block in the storage, blocks) each; lanes count through them.
    """

    storage: Storage
    first_block: int
    map: LaneMap
    segments: tuple[tuple[int, int], ...] = ()

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """The runs of blocks in the storage."""
        return self.segments or ((self.first_block, self.map.blocks),)

    @property
    def end_block(self) -> int:
        """The block after the last one."""
        return max(first + count for first, count in self.runs)

    def storage_block(self, block: int) -> int:
        """Where block number `block` of the tensor lies in the storage."""
        for first, count in self.runs:
            if block < count:
                return first + block
            block -= count
        raise IndexError(block)

    @property
    def lanes_from_first_block(self) -> np.ndarray:
        """Lane of every channel counted from `first_block`, in the storage's own lanes."""
        blocks = np.array([self.storage_block(b) for b in range(self.map.blocks)])
        return (blocks[self.map.lanes // LANES] - self.first_block) * LANES + self.map.lanes % LANES


@dataclass
class Fold:
    """Operand 0 of a first layer: an image folded by LOAD_FOLD into a map of height x width pixels, `blocks` blocks."""

    image: str
    window: Window
    height: int
    width: int
    blocks: int
    pad_bytes: np.ndarray


@dataclass(eq=False)
class Layer:
    """One operator application to execute, its parameters, and the tensors it works on."""

    node: Node
    params: NodeParams
    inputs: list[str]
    output: str
    out_size: tuple[int, int]
    fold: Fold | None = None
    macs: int = 0
    id: str = ""
    residual: Residual | None = None  # `inputs` then ends with the skip tensor, and `output` is the sum
    before_sum: str = ""  # with `residual`: the tensor that the convolution alone gives, which is nowhere in memory

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name


@dataclass
class Lowered:
    """One NPU partition after the lane step."""

    index: int  # of the partition in the graph
    layers: list[Layer]
    inputs: list[str]
    outputs: list[str]


@dataclass
class LaneResult:
    """All NPU partitions; where every tensor lies."""

    qgraph: QGraph
    arch: Arch
    partitions: list[Lowered]
    places: dict[str, Place] = field(default_factory=dict)
    in_place: dict[Storage, Storage] = field(
        default_factory=dict
    )  # may take the bytes of another when that is read for the last time
    moved_names: dict[str, str] = field(default_factory=dict)  # tensors made by this step -> the tensor they hold

    def to_json(self) -> dict[str, Any]:
        """For --dump-steps."""
        return {
            "partitions": [
                {
                    "index": p.index,
                    "inputs": p.inputs,
                    "outputs": p.outputs,
                    "layers": [
                        {
                            "id": y.id,
                            "name": y.name,
                            "op": y.node.op,
                            "inputs": y.inputs,
                            "output": y.output,
                            "folded": bool(y.fold),
                            "residual": y.residual.node.name if y.residual else "",
                        }
                        for y in p.layers
                    ],
                }
                for p in self.partitions
            ],
            "tensors": {
                name: {
                    "storage": p.storage.name,
                    "first_block": p.first_block,
                    "blocks": p.map.blocks,
                    "lanes": p.map.lanes.tolist(),
                }
                for name, p in self.places.items()
            },
        }
