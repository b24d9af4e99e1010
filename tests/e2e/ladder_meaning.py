"""When do two settings of an instruction's fields mean the same? `meaning` is a normal form, written from the instruction table's pseudo-code only.

A mutation that leaves the normal form alone is none: it must not change anything, and need not be noticed. That, and the two rules in
`harmless`, is the list of what legitimately cannot matter; everything else has to be noticed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

Fields = Mapping[str, int]
Taps = tuple[tuple[tuple[int, int | None], ...], ...]
MANY = 1 << 18  # beyond this the normal form is not worked out: nothing so large is ever silent


def _taps(v: Fields, axis: str, pad: str) -> Taps:
    """Per output row or column: (tap, input coordinate, None on the border)."""
    out, kernel, size = v[f"out_{axis}"], v[f"kernel_{axis}"], v[f"in_{axis}"]
    if out * kernel > MANY:
        raise OverflowError
    stride, dilation = v[f"stride_{axis}"], v[f"dilation_{axis}"]
    return tuple(
        tuple((t, c if 0 <= (c := o * stride - v[pad] + t * dilation) < size else None) for t in range(kernel))
        for o in range(out)
    )


def _copies(v: Fields) -> tuple[tuple[int, int], ...]:
    """(DDR address, SRAM address) of every chunk, repeats left out."""
    if v["rows"] * v["cols"] > MANY:
        raise OverflowError
    return tuple(
        dict.fromkeys(
            (
                v["ddr_addr"] + r * v["ddr_row_stride"] + c * v["ddr_col_stride"],
                v["sram_addr"] + r * v["sram_row_stride"] + c * v["sram_col_stride"],
            )
            for r in range(v["rows"])
            for c in range(v["cols"])
        )
    )


def meaning(name: str, fields: Fields) -> Hashable:
    """Equal for fields that make the instruction do the same. Tokens are not part of it."""
    v = {key: value for key, value in fields.items() if key not in ("pop", "push")}

    def drop(*keys: str) -> None:
        for key in keys:
            v.pop(key, None)

    parts: list[Hashable] = [name]
    try:
        if name in ("LOAD", "STORE"):
            parts.append(_copies(v))
            drop("rows", "cols", "ddr_row_stride", "ddr_col_stride", "sram_row_stride", "sram_col_stride")
            drop("ddr_addr", "sram_addr")
        elif name != "HALT":
            _window_or_map(name, v, parts, drop)
    except OverflowError:
        parts = [name, "unreduced"]
        v = dict(fields)
    return (*parts, tuple(sorted(v.items())))


def _window_or_map(name: str, v: dict[str, int], parts: list[Hashable], drop: object) -> None:
    assert callable(drop)
    rows_read, columns_read = set(range(v["out_h"])), set(range(v["out_w"]))
    if "kernel_h" in v:
        rows, columns = _taps(v, "h", "pad_top"), _taps(v, "w", "pad_left")
        rows_read, columns_read = ({c for o in axis for _, c in o if c is not None} for axis in (rows, columns))
        if all(c is not None for axis in (rows, columns) for o in axis for _, c in o):
            drop("pad_addr", "pad_bytes")  # there is no border
        if name == "POOL":  # border taps do not take part, and which tap it was does not matter
            reduced = [tuple(tuple(c for _, c in o if c is not None) for o in axis) for axis in (rows, columns)]
            parts += reduced
        else:
            parts += [rows, columns]
        drop("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w", "pad_top", "pad_left")
        drop("in_h", "in_w")
    if name == "RESIZE":
        drop("in_h", "in_w")  # they only bound the coordinates in the records
        rows_read = columns_read = {0, 1}
    source = "ddr" if name == "LOAD_FOLD" else "in"
    if rows_read <= {0}:
        drop(f"{source}_row_stride")
    if columns_read <= {0}:
        drop(f"{source}_pixel_stride")
    if v["out_h"] == 1:
        drop("out_row_stride", "b_row_stride")
    if v["out_w"] == 1:
        drop("out_pixel_stride", "b_pixel_stride")


SAME = "the same meaning: strides of an axis with one position, repeats, or sizes and pads that no window reaches"
GROWING = ("chunk", "rows", "cols", "out_h", "out_w")


def harmless(
    name: str,
    before: Fields,
    after: Fields,
    requant: np.ndarray | None,
    one_lane: bool = False,
    dead: frozenset[int] = frozenset(),
) -> str:
    """Why this change of one field may pass unnoticed, empty if it may not.

    `requant`: REQUANT_DTYPE records of the instruction's lanes; `one_lane`: only lane 0 of the output is a channel; `dead`: file offsets of bytes
    that cannot matter (ladder_parameters.py)."""
    if meaning(name, before) == meaning(name, after):
        return (
            "the same meaning: strides of an axis with one position, repeats, or sizes and pads that no window reaches"
        )
    (field,) = [key for key in before if before[key] != after[key]]
    if field in GROWING and after[field] > before[field]:
        return "writes all the right bytes and more, into memory whose content nobody reads again"
    if one_lane and name == "CONV" and field in ("blocks_in", "kernel_h", "kernel_w") and after[field] > before[field]:
        return "the further weights of the only channel are those of the pad lanes behind it, 0"
    if name == "LOAD" and field == "chunk" and before["region"] == 0 and before["rows"] * before["cols"] == 1:
        left_out = range(before["ddr_addr"] + after[field], before["ddr_addr"] + before[field])
        return "only bytes that cannot matter are left out" if dead.issuperset(left_out) else ""
    if field in ("tail_low", "tail_high") and requant is not None:
        step = np.abs(float(after[field] - before[field]) * requant["m1"]) / np.exp2(requant["a"].astype(float))
        if step.max() < 1:
            return "a constant tail that differs by less than one output step in every lane"
    return ""
