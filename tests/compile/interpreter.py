"""A plain numpy interpreter of the instruction set for tests: written from the table's meanings, one instruction at a time in program order.

Own arithmetic (no code of the operators, the quantiser or the simulators). It also refuses what is out of bounds or misaligned.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npuforge.hw_kernels.isa.binfile import parse_bin
from npuforge.hw_kernels.isa.codec import decode, split

Fields = Mapping[str, int]


class Machine:
    """Memories and the instructions' effects. Unwritten SRAM holds a pattern, so that a read of garbage shows."""

    def __init__(self, image: bytes) -> None:
        parsed = parse_bin(image)
        self.meta: dict[str, Any] = json.loads(parsed["meta"].data)
        self.image = np.frombuffer(image, np.uint8)
        self.sram = np.full(self.meta["arch"]["sram_bytes"], 0x5A, np.uint8)
        self.before_sum = np.full_like(self.sram, 0x5A)  # what a convolution gives before the sum of its residual stage
        self.pool = np.full(self.meta["pool_size"], 0xA5, np.uint8)
        self.stream = list(split(parsed["instructions"].data))

    # ---- the application's side --------------------------------------------------------------------------------------
    def write_tensor(self, name: str, value: np.ndarray) -> None:
        """int8 [H, W, C] into the pool; pad lanes 0."""
        t = self.meta["tensors"][name]["npu"]
        lanes = min(t["pixel_stride"], -(-(max(t["lanes"]) + 1) // 16) * 16)  # whole blocks; a tight image has none
        view = self._view(self.pool, t["offset"], t["h"], t["w"], t["row_stride"], t["pixel_stride"], lanes)
        block = np.zeros(view.shape, np.uint8)
        block[..., t["lanes"]] = value.view(np.uint8)
        view[...] = block

    def read_tensor(self, name: str) -> np.ndarray:
        """int8 [H, W, C] from the pool."""
        t = self.meta["tensors"][name]["npu"]
        view = self._view(
            self.pool, t["offset"], t["h"], t["w"], t["row_stride"], t["pixel_stride"], max(t["lanes"]) + 1
        )
        return view[..., t["lanes"]].view(np.int8)

    def read_trace(self, trace: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """(channels int8 [H, W, C], pad lanes [H, W, n] of the tensor's own blocks) at a trace point."""
        memory = self.sram if trace["space"] == "sram" else self.pool
        view = self._view(
            memory,
            trace["address"],
            trace["h"],
            trace["w"],
            trace["row_stride"],
            trace["pixel_stride"],
            trace["lane_count"],
        )
        own = np.flatnonzero(np.isin(np.arange(trace["lane_count"]) // 16, np.array(trace["lanes"]) // 16))
        pad = np.setdiff1d(own, trace["lanes"])
        return view[..., trace["lanes"]].view(np.int8).copy(), view[..., pad].copy()

    def read_piece(self, trace: Mapping[str, Any], piece: Mapping[str, Any], into: np.ndarray) -> np.ndarray:
        """Copies the piece's rows and channels to their places in `into` [H, W, C]; returns its pad lanes."""
        view = self._view(
            self.before_sum,
            piece["address"],
            piece["rows"],
            trace["w"],
            piece["row_stride"],
            piece["pixel_stride"],
            piece["lane_count"],
        )
        lanes = np.array(trace["lanes"]) - piece["first_lane"]
        own = np.flatnonzero((lanes >= 0) & (lanes < piece["lane_count"]))
        rows = slice(piece["first_row"], piece["first_row"] + piece["rows"])
        into[rows, :, own] = view[..., lanes[own]].view(np.int8)
        return view[..., np.setdiff1d(np.arange(piece["lane_count"]), lanes[own])].copy()

    def run(self, partition: Mapping[str, Any], hook: Callable[[int], None] = lambda index: None) -> None:
        """All instructions of one NPU partition."""
        first, count = partition["first_instruction"], partition["instruction_count"]
        for index in range(first, first + count):
            instruction, fields = decode(self.stream[index])
            if instruction.name == "HALT":
                assert index == first + count - 1, "HALT before the end"
                return
            getattr(self, f"_{instruction.name.lower()}")(fields)
            hook(index)
        raise AssertionError("the partition does not end with HALT")

    # ---- memory ----------------------------------------------------------------------------------------------------
    @staticmethod
    def _view(
        memory: np.ndarray, base: int, rows: int, cols: int, row_stride: int, col_stride: int, size: int
    ) -> np.ndarray:
        assert rows > 0 and cols > 0 and size > 0
        end = base + (rows - 1) * row_stride + (cols - 1) * col_stride + size
        assert base >= 0 and end <= memory.size, f"bytes {base}..{end} of {memory.size}"
        return np.lib.stride_tricks.as_strided(memory[base:], (rows, cols, size), (row_stride, col_stride, 1))

    def _array(self, address: int, dtype: str, count: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize * count
        assert address % 16 == 0 and address + size <= self.sram.size
        return np.frombuffer(self.sram[address : address + size].tobytes(), dtype)

    def _input(self, f: Fields, blocks: int, rows: int, cols: int) -> np.ndarray:
        assert f["in_addr"] % 16 == 0
        return self._view(
            self.sram, f["in_addr"], rows, cols, f["in_row_stride"], f["in_pixel_stride"], 16 * blocks
        ).view(np.int8)

    def _write(self, f: Fields, value: np.ndarray, memory: np.ndarray | None = None) -> None:
        assert f["out_addr"] % 16 == 0 and value.min() >= -128 and value.max() <= 127
        view = self._view(
            self.sram if memory is None else memory,
            f["out_addr"],
            f["out_h"],
            f["out_w"],
            f["out_row_stride"],
            f["out_pixel_stride"],
            16 * f["blocks_out"],
        )
        view[...] = value.astype(np.int8).view(np.uint8)

    # ---- transfers -------------------------------------------------------------------------------------------------
    def _transfer(self, f: Fields, load: bool) -> None:
        assert f["chunk"] % 16 == 0 and f["ddr_addr"] % 16 == 0 and f["sram_addr"] % 16 == 0
        memory = self.image if f["region"] == 0 else self.pool
        ddr = self._view(
            memory, f["ddr_addr"], f["rows"], f["cols"], f["ddr_row_stride"], f["ddr_col_stride"], f["chunk"]
        )
        sram = self._view(
            self.sram, f["sram_addr"], f["rows"], f["cols"], f["sram_row_stride"], f["sram_col_stride"], f["chunk"]
        )
        if load:
            sram[...] = ddr
        else:
            assert f["region"] == 1
            ddr[...] = sram

    def _load(self, f: Fields) -> None:
        self._transfer(f, True)

    def _store(self, f: Fields) -> None:
        self._transfer(f, False)

    def _load_fold(self, f: Fields) -> None:
        channels, height, width = f["channels"], f["in_h"], f["in_w"]
        memory = self.image if f["region"] == 0 else self.pool
        image = self._view(memory, f["ddr_addr"], height, width, f["ddr_row_stride"], channels, channels).view(np.int8)
        out = np.zeros((f["out_h"], f["out_w"], 16 * f["blocks_out"]), np.int8)
        pad = np.array([f["pad_bytes"] >> (8 * c) & 0xFF for c in range(channels)], np.uint8).view(np.int8)
        for y in range(f["out_h"]):
            for ky in range(f["kernel_h"]):
                iy = y * f["stride_h"] - f["pad_top"] + ky
                for kx in range(f["kernel_w"]):
                    ix = np.arange(f["out_w"]) * f["stride_w"] - f["pad_left"] + kx
                    inside = (ix >= 0) & (ix < width) & (0 <= iy < height)
                    lane = (ky * f["kernel_w"] + kx) * channels
                    found = image[min(max(iy, 0), height - 1), np.clip(ix, 0, width - 1)]
                    out[y, :, lane : lane + channels] = np.where(inside[:, None], found, pad)
        self._write(f, out)

    # ---- windows ---------------------------------------------------------------------------------------------------
    def _taps(self, f: Fields, x: np.ndarray, pad: np.ndarray) -> Any:
        """(ky, kx, bytes [out_h, out_w, lanes], inside [out_h, out_w]) of every tap."""
        for ky in range(f["kernel_h"]):
            iy = np.arange(f["out_h"]) * f["stride_h"] - f["pad_top"] + ky * f["dilation_h"]
            for kx in range(f["kernel_w"]):
                ix = np.arange(f["out_w"]) * f["stride_w"] - f["pad_left"] + kx * f["dilation_w"]
                inside = ((iy >= 0) & (iy < f["in_h"]))[:, None] & ((ix >= 0) & (ix < f["in_w"]))[None, :]
                found = x[np.clip(iy, 0, f["in_h"] - 1)][:, np.clip(ix, 0, f["in_w"] - 1)]
                yield ky, kx, np.where(inside[..., None], found, pad).astype(np.int64), inside

    def _stage(self, f: Fields, acc: np.ndarray) -> np.ndarray:
        lanes = 16 * f["blocks_out"]
        raw = self.sram[f["requant_addr"] : f["requant_addr"] + 8 * lanes].tobytes()
        m0, m1, s0, z, a, b = (np.array(c, np.int64) for c in zip(*struct.iter_unpack("<hhbbbb", raw), strict=True))

        def shift(value: np.ndarray, by: np.ndarray) -> np.ndarray:
            assert by.min() >= 0 and by.max() <= 47
            return (value + (np.left_shift(1, by) >> 1)) >> by

        if f["stage"] == 1:
            assert not b.any()
            bits = f["fraction_bits"]
            table = self._array(f["table_addr"], "<i2", 257).astype(np.int64)
            t = np.clip(shift(acc * m0, s0), -32768, 32767)
            low, high = t < -(8 << bits), t >= 8 << bits
            safe = np.where(low | high, 0, t)
            k, r = (safe >> (bits - 4)) + 128, safe & ((1 << (bits - 4)) - 1)
            u = table[k] + (((table[k + 1] - table[k]) * r + (1 << (bits - 5))) >> (bits - 4))
            u = np.where(low, t if f["tail_low_is_input"] else f["tail_low"], u)
            u = np.where(high, t if f["tail_high_is_input"] else f["tail_high"], u)
            return np.clip(shift(u * m1, a) + z, -128, 127)
        scaled = acc * np.where(acc < 0, m1, m0) if f["stage"] == 0 else acc
        return np.clip(shift(scaled, s0) + z, a, b)

    def _conv(self, f: Fields) -> None:
        lanes_in, lanes_out = 16 * f["blocks_in"], 16 * f["blocks_out"]
        shape = (lanes_out, f["kernel_h"], f["kernel_w"], lanes_in)
        weight = self._array(f["weight_addr"], "i1", int(np.prod(shape))).reshape(shape).astype(np.float64)
        acc = np.zeros((f["out_h"], f["out_w"], lanes_out))
        acc += self._array(f["bias_addr"], "<i4", lanes_out)
        x = self._input(f, f["blocks_in"], f["in_h"], f["in_w"])
        for ky, kx, tap, _ in self._taps(f, x, self._array(f["pad_addr"], "i1", lanes_in)):
            acc += tap.astype(np.float64) @ weight[:, ky, kx].T  # exact: below 2^53
        assert np.abs(acc).max() < 2**31
        result = self._stage(f, acc.astype(np.int64))
        if f["residual"]:
            assert f["sum_stage"] in (0, 2)
            self._write(f, result, self.before_sum)
            b = self._view(
                self.sram, f["b_addr"], f["out_h"], f["out_w"], f["b_row_stride"], f["b_pixel_stride"], lanes_out
            ).view(np.int8)
            ma, mb, za, zb = self._operands(f)
            total = ma * (result - za) + mb * (b.astype(np.int64) - zb)
            result = self._stage(dict(f) | {"stage": f["sum_stage"], "requant_addr": f["sum_requant_addr"]}, total)
        self._write(f, result)

    def _operands(self, f: Fields) -> tuple[np.ndarray, ...]:
        raw = self._array(f["operand_addr"], "i1", 8 * 16 * f["blocks_out"]).tobytes()
        *members, zero = (np.array(c, np.int64) for c in zip(*struct.iter_unpack("<hhbbh", raw), strict=True))
        assert not zero.any()
        return tuple(members)

    def _depthwise(self, f: Fields) -> None:
        lanes = 16 * f["blocks_out"]
        shape = (f["kernel_h"], f["kernel_w"], lanes)
        weight = self._array(f["weight_addr"], "i1", int(np.prod(shape))).reshape(shape).astype(np.int64)
        acc = np.zeros((f["out_h"], f["out_w"], lanes), np.int64) + self._array(f["bias_addr"], "<i4", lanes)
        x = self._input(f, f["blocks_out"], f["in_h"], f["in_w"])
        for ky, kx, tap, _ in self._taps(f, x, self._array(f["pad_addr"], "i1", lanes)):
            acc += tap * weight[ky, kx]
        self._write(f, self._stage(f, acc))

    def _pool(self, f: Fields) -> None:
        lanes = 16 * f["blocks_out"]
        x = self._input(f, f["blocks_out"], f["in_h"], f["in_w"])
        average = f["kind"] == 1
        border = np.full(lanes, 0 if average else -128, np.int8)
        total = np.full((f["out_h"], f["out_w"], lanes), 0 if average else -128, np.int64)
        count = np.zeros((f["out_h"], f["out_w"]), np.int64)
        for _, _, tap, inside in self._taps(f, x, border):
            total = total + tap if average else np.maximum(total, tap)
            count += inside
        assert count.min() >= 1
        if average:
            rows = 1 if f["single"] else int(count.max())
            assert not f["single"] or count.min() == count.max()
            factor = self._array(f["weight_addr"], "<i2", rows * lanes).reshape(rows, lanes).astype(np.int64)
            factor = factor[np.zeros_like(count) if f["single"] else count - 1]
            z_out = self._array(f["requant_addr"], "i1", 8 * lanes).reshape(lanes, 8)[:, 5].astype(np.int64)
            z_in = self._array(f["operand_addr"], "i1", 8 * lanes).reshape(lanes, 8)[:, 4].astype(np.int64)
            total = (total - count[..., None] * z_in) * factor
            total = np.clip(((total + ((1 << f["shift"]) >> 1)) >> f["shift"]) + z_out, -128, 127)
        self._write(f, total)

    # ---- element-wise ----------------------------------------------------------------------------------------------
    def _eltwise(self, f: Fields) -> None:
        lanes = 16 * f["blocks_out"]
        a = self._input(f, f["blocks_out"], f["out_h"], f["out_w"]).astype(np.int64)
        ma, mb, za, zb = self._operands(f)
        if f["kind"] == 3:
            d = ma * (a - za) + self._array(f["bias_addr"], "<i4", lanes).astype(np.int64)
        else:
            size = 1 if f["broadcast_b"] else lanes
            b = self._view(
                self.sram, f["b_addr"], f["out_h"], f["out_w"], f["b_row_stride"], f["b_pixel_stride"], size
            ).view(np.int8)
            b = b.astype(np.int64) - zb
            a = a - za
            d = a * b * ma if f["kind"] == 2 else ma * a + (mb * b if f["kind"] == 0 else -mb * b)
        self._write(f, self._stage(f, d))

    def _resize(self, f: Fields) -> None:
        x = self._input(f, f["blocks_out"], f["in_h"], f["in_w"]).astype(np.int64)
        axes = []
        for key, count, limit in (("row_table_addr", "out_h", "in_h"), ("col_table_addr", "out_w", "in_w")):
            records = self._array(f[key], "<i2", 4 * f[count]).reshape(-1, 4).astype(np.int64)
            assert records[:, :2].min() >= 0 and records[:, :2].max() < f[limit] and not records[:, 3].any()
            assert records[:, 2].min() >= 0 and records[:, 2].max() <= 256
            axes.append(records)
        total = np.zeros((f["out_h"], f["out_w"], 16 * f["blocks_out"]), np.int64)
        for which_row in (0, 1):
            wy = axes[0][:, 2] if which_row else 256 - axes[0][:, 2]
            for which_col in (0, 1):
                wx = axes[1][:, 2] if which_col else 256 - axes[1][:, 2]
                total += (wy[:, None] * wx[None, :])[..., None] * x[axes[0][:, which_row]][:, axes[1][:, which_col]]
        self._write(f, (total + (1 << 15)) >> 16)

    def _copy(self, f: Fields) -> None:
        self._write(f, self._input(f, f["blocks_out"], f["out_h"], f["out_w"]).astype(np.int64))
