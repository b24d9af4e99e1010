"""A complete `.bin` written by hand: one or two NPU partitions that copy a tensor through the SRAM, a CPU partition, constants, trace points.

What it computes is plain numpy here, so the runtime is tested without the compiler: x -> int8 lanes -> (NPU copy) -> real values y ->
sigmoid -> reshape -> concatenation with a constant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuforge.hw_kernels import arch as arches
from npuforge.hw_kernels.isa.binfile import BinWriter, Dtype
from npuforge.hw_kernels.isa.codec import encode

LOAD, CONV, VECTOR, STORE = 1, 2, 4, 8  # bits of `pop` and `push`
H, W = 4, 6
LANES = [3, 0, 7, 1, 12]
CHANNELS = len(LANES)
SCALE = [0.05, 0.1, 0.02, 0.0625, 0.003]
ZERO = [0, -3, 100, -128, 7]
CONSTANT = np.arange(2 * CHANNELS, dtype=np.float32).reshape(1, CHANNELS, 2)


def round_half_up(value: np.ndarray) -> np.ndarray:
    """floor(x + 1/2)."""
    return np.floor(value + 0.5)


def copy_program(source: int, target: int, w: int = W) -> list[bytes]:
    """One partition: pool -> SRAM 0 -> SRAM 4096 -> pool, 16 lanes a pixel."""
    size = {"rows": H, "cols": w, "chunk": 16}
    near = {"sram_row_stride": 16 * w, "sram_col_stride": 16, "ddr_row_stride": 16 * w, "ddr_col_stride": 16}
    maps = {"in_row_stride": 16 * w, "in_pixel_stride": 16, "blocks_out": 1, "out_h": H, "out_w": w}
    return [
        encode("LOAD", region=1, ddr_addr=source, sram_addr=0, push=VECTOR, **size, **near),
        encode(
            "COPY", in_addr=0, out_addr=4096, out_row_stride=16 * w, out_pixel_stride=16, pop=LOAD, push=STORE, **maps
        ),
        encode("STORE", region=1, ddr_addr=target, sram_addr=4096, pop=VECTOR, **size, **near),
        encode("HALT"),
    ]


@dataclass
class TinyModel:
    """`image`: pixels in, mean and 1/std as scale. `second`: a CPU node and another NPU partition in between. `arch`: its configuration."""

    image: bool = False
    second: bool = False
    arch: str = "nf-b1024"
    meta_changes: Mapping[str, Any] = field(default_factory=dict)

    def tensor(self, offset: int | None) -> dict[str, Any]:
        """The record of a feature map; `offset` None: only the CPU sees it."""
        record: dict[str, Any] = {"shape": [1, CHANNELS, H, W], "dtype": "float32", "npu": None}
        if offset is not None:
            npu = {"offset": offset, "h": H, "w": W, "c": CHANNELS, "row_stride": 16 * W, "pixel_stride": 16}
            npu |= {"lanes": LANES, "scale": SCALE, "zero_point": ZERO, "image_mean": None, "fix_point": None}
            record["npu"] = npu
        return record

    def meta(self) -> dict[str, Any]:
        """The meta section."""
        arch = arches.load(self.arch)
        tensors = {"x": self.tensor(0), "y": self.tensor(1024)}
        if self.image:
            tensors["x"]["npu"]["image_mean"] = [10.5, 0.0, 127.0, 128.0, 255.0]
        trace = {"h": H, "w": W, "row_stride": 16 * W, "pixel_stride": 16, "lanes": LANES, "lane_count": 16}
        places = [("sram", 4096, 1), ("pool", 1024, 2)]
        layers: list[dict[str, Any]] = [
            {
                **{"id": f"L{i:04d}", "name": f"copy{i}", "op": "Copy", "sources": ["copy"], "tensor": "y", "macs": 0},
                **{"first_instruction": 0, "last_instruction": 2},
                "trace": {"space": space, "address": address, "after_instruction": after, **trace},
            }
            for i, (space, address, after) in enumerate(places)
        ]
        partitions: list[dict[str, Any]] = [
            {"device": "NPU", "first_instruction": 0, "instruction_count": 4, "inputs": ["x"], "outputs": ["y"]}
        ]
        last = "y"
        if self.second:
            tensors |= {"n": self.tensor(2048), "z": self.tensor(3072)}
            negate = node("negate", "Neg", ["y"], ["n"])
            partitions += [
                {"device": "CPU", "inputs": ["y"], "outputs": ["n"], "nodes": [negate]},
                {"device": "NPU", "first_instruction": 4, "instruction_count": 4, "inputs": ["n"], "outputs": ["z"]},
            ]
            last = "z"
        tensors |= {
            "o": {"shape": [1, CHANNELS, H * W + 2], "dtype": "float32", "npu": None},
            "s": self.tensor(None),
        }
        nodes = [
            node("sigmoid", "Sigmoid", [last], ["s"]),
            node("reshape", "Reshape", ["s", "shape"], ["r"]),
            node("join", "Concat", ["r", "constant"], ["o"], {"axis": 2}),
        ]
        partitions.append({"device": "CPU", "inputs": [last], "outputs": ["o"], "nodes": nodes})
        return {
            **{"format": 1, "tool": "test", "name": "tiny", "mode": "fine", "pool_size": 4096},
            **{"arch": arch.to_json(), "fingerprint": arch.fingerprint, "inputs": ["x"], "outputs": ["o", last]},
            **{"tensors": tensors, "input_layout": {"x": "NCHW"}, "partitions": partitions, "layers": layers},
            "constants": {
                "constant": {"section": "C0000", "shape": list(CONSTANT.shape), "dtype": "float32"},
                "shape": {"section": "C0001", "shape": [3], "dtype": "int64"},
            },
            **self.meta_changes,
        }

    def build(self) -> bytes:
        """The whole file."""
        writer = BinWriter()
        program = copy_program(0, 1024) + (copy_program(2048, 3072) if self.second else [])
        writer.add("instructions", Dtype.INSTRUCTIONS, b"".join(program))
        writer.add("C0000", Dtype.FLOAT32, CONSTANT.astype("<f4").tobytes())
        writer.add("C0001", Dtype.INT32, np.array([0, CHANNELS, -1], "<i4").tobytes())
        writer.add("meta", Dtype.JSON, json.dumps(self.meta()).encode())
        return writer.to_bytes()

    def quantised(self, x: np.ndarray) -> np.ndarray:
        """int8 [1, H, W, C] of float32 [1, C, H, W], or of pixels [1, H, W, C]."""
        if x.dtype == np.uint8:
            return (x.astype(np.int64) - 128).astype(np.int8)
        nhwc = x.astype(np.float64).transpose(0, 2, 3, 1) / np.array(SCALE)
        if self.image:
            mean = np.array(self.meta()["tensors"]["x"]["npu"]["image_mean"])
            return np.clip(round_half_up(nhwc + mean) - 128, -128, 127).astype(np.int8)
        return np.clip(round_half_up(nhwc) + ZERO, -128, 127).astype(np.int8)

    def expected(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Outputs by name."""
        q = self.quantised(x)
        y = ((q.astype(np.float64) - ZERO) * SCALE).astype(np.float32).transpose(0, 3, 1, 2)
        name = "y"
        if self.second:
            name, q = "z", TinyModel().quantised(-y)
            y = ((q.astype(np.float64) - ZERO) * SCALE).astype(np.float32).transpose(0, 3, 1, 2)
        s = (1.0 / (1.0 + np.exp(-y.astype(np.float64)))).astype(np.float32)
        return {"o": np.concatenate([s.reshape(1, CHANNELS, -1), CONSTANT], 2), name: y}


def node(
    name: str, op: str, inputs: list[str], outputs: list[str], attrs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A CPU node's record."""
    return {"name": name, "op": op, "inputs": inputs, "outputs": outputs, "attrs": attrs or {}, "activation": None}
