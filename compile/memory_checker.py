"""Independent validation of memory plans and of the tokens of an instruction stream. Shares no code with the planner or the token step.

`check_plan`: no two buffers alive at one time share bytes. `check_tokens`: reads the encoded instructions only; for every two instructions of
different engines that conflict in memory, the later one must be ordered after the earlier one by the tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import VerifyError
from npuforge.hw_kernels.isa.codec import decode, split
from npuforge.hw_kernels.isa.instructions import Engine, Stage, needs_bf16


def check_plan(buffers: Sequence[Mapping[str, Any]], capacity: int, what: str) -> None:
    """Buffers have name, lower, upper (exclusive), size, offset. The message names both buffers, their addresses and times."""
    for b in buffers:
        if b["offset"] < 0 or b["offset"] + b["size"] > capacity:
            raise VerifyError(
                f"{what}: buffer {b['name']} at {b['offset']}..{b['offset'] + b['size']} is outside 0..{capacity}"
            )
    ordered = sorted(buffers, key=lambda b: b["offset"])
    for position, a in enumerate(ordered):
        for b in ordered[position + 1 :]:
            if b["offset"] >= a["offset"] + a["size"]:
                break
            if a["size"] and b["size"] and a["lower"] < b["upper"] and b["lower"] < a["upper"]:
                raise VerifyError(
                    f"{what}: buffers {a['name']} at {a['offset']}..{a['offset'] + a['size']} (time {a['lower']}..{a['upper']}) and "
                    f"{b['name']} at {b['offset']}..{b['offset'] + b['size']} (time {b['lower']}..{b['upper']}) overlap"
                )


@dataclass(frozen=True)
class Region:
    """Bytes base + r*row_stride + c*col_stride .. + size for all r < rows, c < cols."""

    space: str
    base: int
    rows: int
    row_stride: int
    cols: int
    col_stride: int
    size: int

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.base + (self.rows - 1) * self.row_stride + (self.cols - 1) * self.col_stride + self.size

    def bytes_mask(self, low: int, high: int) -> np.ndarray:
        """Which of the bytes low..high are touched."""
        mask = np.zeros(high - low, bool)
        row_start = self.base + np.arange(self.rows, dtype=np.int64)[:, None] * self.row_stride
        starts = (row_start + np.arange(self.cols, dtype=np.int64)[None, :] * self.col_stride).ravel()
        starts = np.unique(starts[(starts < high) & (starts + self.size > low)])
        for start in starts:
            mask[max(0, start - low) : max(0, start + self.size - low)] = True
        return mask

    def overlaps(self, other: Region) -> bool:
        """Do both touch a common byte? Exact."""
        low, high = max(self.base, other.base), min(self.end, other.end)
        if self.space != other.space or low >= high:
            return False
        if self._solid and other._solid:
            return True
        return bool((self.bytes_mask(low, high) & other.bytes_mask(low, high)).any())

    @property
    def _solid(self) -> bool:
        cols_solid = self.cols == 1 or self.col_stride <= self.size
        row_size = (self.cols - 1) * self.col_stride + self.size
        return cols_solid and (self.rows == 1 or self.row_stride <= row_size)


def _plain(space: str, base: int, size: int) -> Region:
    return Region(space, base, 1, 0, 1, 0, size)


def _output(v: Mapping[str, int], block: int = 16) -> Region:
    size = block * v["blocks_out"]
    return Region("sram", v["out_addr"], v["out_h"], v["out_row_stride"], v["out_w"], v["out_pixel_stride"], size)


def _source(v: Mapping[str, int], blocks: int, rows: int, cols: int, block: int = 16) -> Region:
    return Region("sram", v["in_addr"], rows, v["in_row_stride"], cols, v["in_pixel_stride"], block * blocks)


def _second(v: Mapping[str, int], size: int) -> Region:
    """Operand b of an element-wise instruction or a residual stage; `size`: bytes of a pixel."""
    rows = v["out_h"] if v["b_row_stride"] else 1
    cols = v["out_w"] if v["b_pixel_stride"] else 1
    return Region("sram", v["b_addr"], rows, v["b_row_stride"], cols, v["b_pixel_stride"], size)


def _image(v: Mapping[str, int], channel_bytes: int) -> Region:
    """Rows of the image that a LOAD_FOLD reads."""
    low = min(max(-v["pad_top"], 0), v["in_h"])
    high = min(max((v["out_h"] - 1) * v["stride_h"] - v["pad_top"] + v["kernel_h"], low + 1), v["in_h"])
    start, size = v["ddr_addr"] + low * v["ddr_row_stride"], v["in_w"] * v["channels"] * channel_bytes
    return Region("pool", start, max(1, high - low), v["ddr_row_stride"], 1, 0, size)


def _bf16_reads(name: str, v: Mapping[str, int]) -> list[Region]:
    """What a bf16 instruction other than LOAD_FOLD_BF16 reads."""
    lanes, taps = 16 * v["blocks_out"], v.get("kernel_h", 0) * v.get("kernel_w", 0)
    blocks = v.get("blocks_in", v["blocks_out"])
    rows, cols = v.get("in_h", v["out_h"]), v.get("in_w", v["out_w"])
    reads = [_source(v, blocks, rows, cols, 32)]
    if "record_addr" in v:
        reads.append(_plain("sram", v["record_addr"], 16 * lanes))
        if v["stage"] == Stage.TABLE:
            reads.append(_plain("sram", v["table_addr"], 3072))
    if name == "CONV_BF16":
        reads.append(_plain("sram", v["weight_addr"], 2 * lanes * taps * 16 * blocks))
    elif name == "DEPTHWISE_BF16":
        reads.append(_plain("sram", v["weight_addr"], 2 * lanes * taps))
    elif name == "POOL_BF16" and v["kind"] == 1:
        reads.append(_plain("sram", v["weight_addr"], 4 * (1 if v["single"] else taps)))
    elif name == "ELTWISE_BF16" and v["kind"] == 3:
        reads.append(_plain("sram", v["operand_addr"], 4 * lanes))
    elif name == "ELTWISE_BF16":
        reads.append(_second(v, 2 if v["broadcast_b"] else 2 * lanes))
    elif name == "RESIZE_BF16":
        reads.append(_plain("sram", v["row_table_addr"], 8 * v["out_h"]))
        reads.append(_plain("sram", v["col_table_addr"], 8 * v["out_w"]))
    return reads


def _stage_reads(v: Mapping[str, int]) -> list[Region]:
    reads = [_plain("sram", v["requant_addr"], 8 * 16 * v["blocks_out"])]
    if v["stage"] == Stage.TABLE:
        reads.append(_plain("sram", v["table_addr"], 514))
    return reads


def accesses(name: str, v: Mapping[str, int]) -> tuple[list[Region], list[Region]]:
    """(reads, writes) of one instruction, from the meaning of its fields. The `.bin` region is read only and left out."""
    if name == "HALT":
        return [], []
    if name in ("LOAD", "STORE"):
        sram = Region(
            "sram", v["sram_addr"], v["rows"], v["sram_row_stride"], v["cols"], v["sram_col_stride"], v["chunk"]
        )
        ddr = Region("pool", v["ddr_addr"], v["rows"], v["ddr_row_stride"], v["cols"], v["ddr_col_stride"], v["chunk"])
        if name == "STORE":
            return [sram], [ddr]
        return ([ddr] if v["region"] == 1 else []), [sram]
    if name == "LOAD_FOLD":
        return ([_image(v, 1)] if v["region"] == 1 else []), [_output(v)]
    if name == "LOAD_FOLD_BF16":
        return ([_image(v, 2)] if v["region"] == 1 else []), [_output(v, 32)]
    if needs_bf16(name):
        return _bf16_reads(name, v), [_output(v, 32)]
    lanes = 16 * v["blocks_out"]
    taps = v.get("kernel_h", 0) * v.get("kernel_w", 0)
    if name == "CONV":
        reads = [
            _source(v, v["blocks_in"], v["in_h"], v["in_w"]),
            _plain("sram", v["weight_addr"], lanes * taps * 16 * v["blocks_in"]),
        ]
        reads += [
            _plain("sram", v["bias_addr"], 4 * lanes),
            _plain("sram", v["pad_addr"], 16 * v["blocks_in"]),
            *_stage_reads(v),
        ]
        if v["residual"]:
            reads += [
                _second(v, lanes),
                *(_plain("sram", v[k], 8 * lanes) for k in ("operand_addr", "sum_requant_addr")),
            ]
    elif name == "DEPTHWISE":
        reads = [_source(v, v["blocks_out"], v["in_h"], v["in_w"]), _plain("sram", v["weight_addr"], lanes * taps)]
        reads += [_plain("sram", v["bias_addr"], 4 * lanes), _plain("sram", v["pad_addr"], lanes), *_stage_reads(v)]
    elif name == "POOL":
        reads = [_source(v, v["blocks_out"], v["in_h"], v["in_w"])]
        if v["kind"] == 1:
            counts = 1 if v["single"] else taps
            reads += [_plain("sram", v["weight_addr"], 2 * lanes * counts)]
            reads += [_plain("sram", v[key], 8 * lanes) for key in ("requant_addr", "operand_addr")]
    elif name == "ELTWISE":
        reads = [
            _source(v, v["blocks_out"], v["out_h"], v["out_w"]),
            _plain("sram", v["operand_addr"], 8 * lanes),
            *_stage_reads(v),
        ]
        if v["kind"] == 3:
            reads.append(_plain("sram", v["bias_addr"], 4 * lanes))
        else:
            reads.append(_second(v, 1 if v["broadcast_b"] else lanes))
    elif name == "RESIZE":
        reads = [_source(v, v["blocks_out"], v["in_h"], v["in_w"])]
        reads += [
            _plain("sram", v["row_table_addr"], 8 * v["out_h"]),
            _plain("sram", v["col_table_addr"], 8 * v["out_w"]),
        ]
    else:
        reads = [_source(v, v["blocks_out"], v["out_h"], v["out_w"])]
    return reads, [_output(v)]


def check_tokens(instructions: bytes, sram_bytes: int, pool_size: int) -> int:
    """Checks one partition's stream; returns the number of pairs that may run at once. The message names both instructions."""
    decoded = [decode(one) for one in split(instructions)]
    count = len(decoded)
    if not decoded or decoded[-1][0].name != "HALT":
        raise VerifyError("tokens: the stream does not end with HALT")
    engines = [instruction.engine for instruction, _ in decoded]
    touched = [accesses(instruction.name, values) for instruction, values in decoded]
    for index, (reads, writes) in enumerate(touched):
        for region in (*reads, *writes):
            limit = sram_bytes if region.space == "sram" else pool_size
            if region.end > limit or region.base < 0:
                raise VerifyError(
                    f"tokens: instruction {index} ({decoded[index][0].name}) reaches byte {region.end} of {region.space}, which has {limit}"
                )
    before = _happens_before(decoded, engines)
    queues = {e: [i for i, own in enumerate(engines) if own == e] for e in Engine}
    unordered = 0
    for later in range(count):
        for engine in Engine:
            if engine == engines[later]:
                continue
            for earlier in reversed(queues[engine][: bisect_left(queues[engine], later)]):
                if earlier <= before[later][engine]:
                    break
                unordered += 1
                if _conflict(touched[earlier], touched[later]):
                    raise VerifyError(
                        f"tokens: instruction {later} ({decoded[later][0].name}) touches memory of instruction {earlier} "
                        f"({decoded[earlier][0].name}) without waiting for it"
                    )
    final = before[count - 1]
    for engine in Engine:
        last = max((i for i in range(count - 1) if engines[i] == engine), default=-1)
        if engine != Engine.LOAD and final[engine] < last:
            raise VerifyError(f"tokens: HALT does not wait for instruction {last} ({decoded[last][0].name})")
    return unordered


def _happens_before(
    decoded: Sequence[tuple[Any, Mapping[str, int]]], engines: Sequence[Engine]
) -> list[dict[Engine, int]]:
    """Per instruction and engine: the last instruction of that engine that has surely ended when it starts. Replays the token queues."""
    given: dict[tuple[Engine, Engine], list[int]] = {(a, b): [] for a in Engine for b in Engine}
    taken = dict.fromkeys(given, 0)
    for index, (_, values) in enumerate(decoded):
        for other in Engine:
            if values["push"] >> other & 1:
                given[(engines[index], other)].append(index)
    before: list[dict[Engine, int]] = [{} for _ in decoded]
    last: dict[Engine, int] = dict.fromkeys(Engine, -1)
    position = {e: 0 for e in Engine}
    queues = {e: [i for i, own in enumerate(engines) if own == e] for e in Engine}
    done: set[int] = set()
    progress = True
    while progress:
        progress = False
        for engine in Engine:
            while position[engine] < len(queues[engine]):
                index = queues[engine][position[engine]]
                pops = [o for o in Engine if decoded[index][1]["pop"] >> o & 1]
                sources = []
                for other in pops:
                    pair = (other, engine)
                    if taken[pair] >= len(given[pair]):
                        raise VerifyError(
                            f"tokens: instruction {index} waits for a token from {other.name} that is never given"
                        )
                    sources.append(given[pair][taken[pair]])
                if not all(s in done for s in sources):
                    break
                for other in pops:
                    taken[(other, engine)] += 1
                known = dict(before[last[engine]]) if last[engine] >= 0 else dict.fromkeys(Engine, -1)
                known[engine] = last[engine]
                for source in sources:
                    for e in Engine:
                        known[e] = max(known[e], before[source][e])
                    known[engines[source]] = max(known[engines[source]], source)
                before[index] = known
                last[engine] = index
                position[engine] += 1
                done.add(index)
                progress = True
    if len(done) < len(decoded):
        stuck = [queues[e][position[e]] for e in Engine if position[e] < len(queues[e])]
        raise VerifyError(f"tokens: deadlock, instructions {stuck} wait for each other")
    for pair, tokens in given.items():
        if taken[pair] != len(tokens):
            raise VerifyError(
                f"tokens: instruction {tokens[taken[pair]]} gives {pair[1].name} a token that is never taken"
            )
    return before


def _conflict(a: tuple[list[Region], list[Region]], b: tuple[list[Region], list[Region]]) -> bool:
    return (
        any(w.overlaps(r) for w in a[1] for r in b[0])
        or any(r.overlaps(w) for r in a[0] for w in b[1])
        or any(v.overlaps(w) for v in a[1] for w in b[1])
    )
