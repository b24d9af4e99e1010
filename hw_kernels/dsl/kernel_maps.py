"""Sizes of the values of an NPU-DSL program over given maps, which operand comes first, and which rows of each a band of the result needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.dsl.tile import Window
from npuforge.hw_kernels.dsl.trace import PAIRS, WINDOWED, Operation, Trace, one_channel

Size = tuple[int, int]  # height, width
Rows = tuple[int, int]  # first, after the last


def placed(trace: Trace, sizes: list[Size]) -> tuple[Trace, list[Size]]:
    """The program over inputs of these sizes: windows resolved, the operand that is broadcast second; sizes of all values.

    InstructionError at the program's line where sizes do not go together.
    """
    operations: list[Operation] = []
    found: list[Size] = []
    single = one_channel(trace)
    if single[trace.result]:
        raise InstructionError(
            f"{trace.operations[trace.result].where}: {trace.name}: the result has one channel, expected those of the inputs; combine it with a tile that has them"
        )
    for o in trace.operations:
        if o.kind == "input":
            size = sizes[o.a]
        elif o.kind in WINDOWED:
            o, size = _windowed(o, found[o.a])
        elif o.kind in PAIRS:
            o, size = _paired(o, found[o.a], found[o.b], single)
        else:
            size = found[o.a]
        operations.append(o)
        found.append(size)
    return replace(trace, operations=operations), found


def check_channels(trace: Trace, channels: int) -> None:
    """InstructionError at the program's line where weights of their own per channel are not as many as the channels."""
    for o, single in zip(trace.operations, one_channel(trace), strict=True):
        have = 1 if single else channels
        if o.kind == "depthwise" and len(o.weights) not in (1, have):
            raise InstructionError(
                f"{o.where}: depthwise_conv2d: weights for {len(o.weights)} channels, the tile has {have}; give one [height][width] for all, or {have}"
            )


def _windowed(o: Operation, size: Size) -> tuple[Operation, Size]:
    window = o.window.resolved(size)
    out = window.output(size)
    if min(out) < 1:
        raise InstructionError(
            f"{o.where}: a window of {window.kernel[0]}x{window.kernel[1]} does not fit a map of {size[0]}x{size[1]}; make it smaller or pad"
        )
    if o.kind == "depthwise":
        return replace(o, window=window), out
    counts = tuple(int(n) for n in np.unique(window.valid_taps(size)))
    if counts[0] == 0:
        raise InstructionError(
            f"{o.where}: some windows have no pixel of a map of {size[0]}x{size[1]}; expected one at least: less padding or dilation"
        )
    return replace(o, window=window, counts=counts if o.kind == "pool_sum" else ()), out


def _paired(o: Operation, a: Size, b: Size, single: list[bool]) -> tuple[Operation, Size]:
    out = (max(a[0], b[0]), max(a[1], b[1]))
    name = "vmax or vmin" if o.kind == "max2" else f"v{o.kind}"
    if any(s not in (1, most) for size in (a, b) for s, most in zip(size, out, strict=True)):
        raise InstructionError(f"{o.where}: {name}: maps of {a[0]}x{a[1]} and {b[0]}x{b[1]} do not go together")
    fewer_a, fewer_b = single[o.a] and not single[o.b], single[o.b] and not single[o.a]
    if o.kind == "max2" and (a != b or fewer_a or fewer_b):
        raise InstructionError(
            f"{o.where}: {name}: expected maps of equal size and channels, found {a[0]}x{a[1]} and {b[0]}x{b[1]}; the pooling engine does not broadcast"
        )
    if a != out or fewer_a:
        if o.kind == "sub" or b != out or fewer_b:
            hint = "; use vadd(vmuls(second, -1), first)" if b == out and not fewer_b else ""
            raise InstructionError(f"{o.where}: {name}: only the second operand may be broadcast{hint}")
        o = replace(o, a=o.b, b=o.a)
    return o, out


def engine_window(o: Operation) -> Window:
    """The window of an instruction."""
    return Window(*o.window.kernel, *o.window.strides, *o.window.dilations, *o.window.pads[:2])


def rows_needed(trace: Trace, sizes: list[Size], low: int, high: int) -> list[Rows]:
    """Rows of every value that rows low..high of the result need; `trace` is placed."""
    needed: list[Rows | None] = [None] * len(trace.operations)
    needed[trace.result] = (low, high)

    def want(value: int, rows: Rows) -> None:
        known = needed[value]
        needed[value] = rows if known is None else (min(known[0], rows[0]), max(known[1], rows[1]))

    for index in range(len(trace.operations) - 1, -1, -1):
        o, rows = trace.operations[index], needed[index]
        if rows is None:
            continue
        if o.kind in WINDOWED:
            want(o.a, engine_window(o).rows(*rows, sizes[o.a][0]))
        else:
            for value in o.reads:
                want(value, (0, 1) if sizes[value][0] == 1 else rows)
    return [rows or (0, 1) for rows in needed]
