"""Illegal instructions and parameters are refused, with the field named and no byte touched; nothing is ever read out of bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hls_support import Outcome, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE, RESIZE_DTYPE, encode, field_range
from npuforge.hw_kernels.isa.instructions import BY_NAME

SRAM = 16384
POOL = 1024
WINDOW = {"kernel_h": 1, "kernel_w": 1, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
MAPS = {
    "in_row_stride": 64,
    "in_pixel_stride": 32,
    "out_row_stride": 64,
    "out_pixel_stride": 32,
    "out_h": 2,
    "out_w": 2,
}
HELD = {"in_h": 2, "in_w": 2}
ADDRESSES = {"in_addr": 0, "out_addr": 1024, "requant_addr": 2048, "blocks_out": 2}
CONVOLUTION = {"weight_addr": 4096, "bias_addr": 3072, "pad_addr": 3584}
RESIDUAL = {"residual": 1, "b_addr": 512, "b_row_stride": 64, "b_pixel_stride": 32}
RESIDUAL |= {"operand_addr": 5120, "sum_requant_addr": 5632}
SECOND = ("b_addr", "b_row_stride", "b_pixel_stride", "operand_addr", "sum_requant_addr")
TRANSFER = {
    "rows": 2,
    "cols": 2,
    "chunk": 32,
    "ddr_row_stride": 64,
    "ddr_col_stride": 32,
    "sram_row_stride": 64,
    "sram_col_stride": 32,
}
MAPS_BF16 = {name: 2 * value if name.endswith("stride") else value for name, value in MAPS.items()}
ADDRESSES_BF16 = {"in_addr": 0, "out_addr": 1024, "blocks_out": 2}
STAGE_BF16 = {"record_addr": 2048}
LEGAL: dict[str, dict[str, int]] = {
    "LOAD": TRANSFER | {"region": 1},
    "STORE": TRANSFER | {"region": 1},
    "LOAD_FOLD": WINDOW
    | HELD
    | {"region": 1, "channels": 3, "blocks_out": 2, "ddr_row_stride": 6, "out_row_stride": 64, "out_pixel_stride": 32}
    | {"out_h": 2, "out_w": 2},
    "CONV": WINDOW | HELD | MAPS | ADDRESSES | CONVOLUTION | {"blocks_in": 2},
    "DEPTHWISE": WINDOW | HELD | MAPS | ADDRESSES | CONVOLUTION,
    "POOL": WINDOW | HELD | MAPS | ADDRESSES | {"kind": 1, "weight_addr": 4096, "operand_addr": 5120},
    "ELTWISE": MAPS | ADDRESSES | {"operand_addr": 5120, "b_addr": 512, "b_row_stride": 64, "b_pixel_stride": 32},
    "RESIZE": HELD
    | MAPS
    | {"in_addr": 0, "out_addr": 1024, "blocks_out": 2, "row_table_addr": 8192, "col_table_addr": 8208},
    "COPY": MAPS | {"in_addr": 0, "out_addr": 1024, "blocks_out": 2},
    "LOAD_FOLD_BF16": WINDOW
    | HELD
    | {"region": 1, "channels": 3, "blocks_out": 2, "ddr_row_stride": 12, "out_row_stride": 128, "out_pixel_stride": 64}
    | {"out_h": 2, "out_w": 2},
    "CONV_BF16": WINDOW | HELD | MAPS_BF16 | ADDRESSES_BF16 | STAGE_BF16 | {"weight_addr": 4096, "blocks_in": 2},
    "DEPTHWISE_BF16": WINDOW | HELD | MAPS_BF16 | ADDRESSES_BF16 | STAGE_BF16 | {"weight_addr": 4096},
    "POOL_BF16": WINDOW | HELD | MAPS_BF16 | ADDRESSES_BF16 | {"kind": 1, "weight_addr": 4096},
    "ELTWISE_BF16": MAPS_BF16
    | ADDRESSES_BF16
    | STAGE_BF16
    | {"b_addr": 512, "b_row_stride": 128, "b_pixel_stride": 64},
    "RESIZE_BF16": HELD | MAPS_BF16 | ADDRESSES_BF16 | {"row_table_addr": 8192, "col_table_addr": 8208},
}


def execute(name: str, fields: dict[str, int], sram: np.ndarray | None = None) -> Outcome:
    memory = np.zeros(SRAM, np.int8) if sram is None else sram
    return run([encode(name, **fields)], sram=memory, pool=np.ones(POOL, np.int8))


@pytest.mark.parametrize("name", LEGAL)
def test_the_starting_points_are_legal(name: str) -> None:
    assert execute(name, LEGAL[name]).code == "OK"


VALUE, ALIGN, BOUNDS = "ILLEGAL_VALUE", "MISALIGNED", "OUT_OF_BOUNDS"
ILLEGAL: list[tuple[str, dict[str, int], str, str]] = [
    ("CONV_BF16", {"stage": 2}, VALUE, "stage"),
    ("CONV_BF16", {"tail_low": 1}, VALUE, "tail_low"),
    ("CONV_BF16", {"stage": 1, "tail_low_is_input": 1, "tail_low": 1}, VALUE, "tail_low"),
    ("CONV_BF16", {"stage": 1, "table_addr": SRAM - 3072 + 16}, BOUNDS, "table_addr"),
    ("CONV_BF16", {"record_addr": SRAM - 512 + 16}, BOUNDS, "record_addr"),
    ("CONV_BF16", {"weight_addr": SRAM - 2048 + 16}, BOUNDS, "weight_addr"),
    ("CONV_BF16", {"kernel_h": 65535, "kernel_w": 65535, "blocks_in": 65535}, BOUNDS, "in_addr"),
    ("DEPTHWISE_BF16", {"weight_addr": SRAM - 64 + 16}, BOUNDS, "weight_addr"),
    ("DEPTHWISE_BF16", {"out_pixel_stride": 48}, VALUE, "out_pixel_stride"),
    ("POOL_BF16", {"kind": 0}, VALUE, "weight_addr"),
    ("POOL_BF16", {"weight_addr": SRAM}, BOUNDS, "weight_addr"),
    ("ELTWISE_BF16", {"operand_addr": 16}, VALUE, "operand_addr"),
    ("ELTWISE_BF16", {"b_addr": 2}, ALIGN, "b_addr"),
    ("ELTWISE_BF16", {"broadcast_b": 1, "b_addr": 513}, ALIGN, "b_addr"),
    ("LOAD_FOLD_BF16", {"ddr_addr": 1}, ALIGN, "ddr_addr"),
    ("LOAD_FOLD_BF16", {"ddr_addr": POOL - 24 + 2}, BOUNDS, "ddr_addr"),
    ("RESIZE_BF16", {"col_table_addr": SRAM}, BOUNDS, "col_table_addr"),
    *(("LOAD", {f: 0}, VALUE, f) for f in ("rows", "cols", "chunk")),
    ("LOAD", {"chunk": 24}, VALUE, "chunk"),
    ("LOAD", {"region": 2}, VALUE, "region"),
    ("STORE", {"region": 0}, VALUE, "region"),
    ("LOAD", {"ddr_addr": POOL - 127 + 15}, BOUNDS, "ddr_addr"),
    ("LOAD", {"ddr_addr": 8}, ALIGN, "ddr_addr"),
    ("LOAD", {"ddr_row_stride": 0xFFFFFFF0}, BOUNDS, "ddr_addr"),
    ("LOAD", {"sram_col_stride": 8}, ALIGN, "sram_col_stride"),
    ("LOAD", {"sram_addr": SRAM - 112}, BOUNDS, "sram_addr"),
    ("STORE", {"sram_addr": 0xFFFFFFF0}, BOUNDS, "sram_addr"),
    ("STORE", {"rows": 65535}, BOUNDS, "ddr_addr"),
    *(("LOAD_FOLD", {f: 2}, VALUE, f) for f in ("dilation_h", "dilation_w", "region")),
    *(("LOAD_FOLD", {"channels": c}, VALUE, "channels") for c in (0, 5)),
    ("LOAD_FOLD", {"kernel_h": 4, "kernel_w": 3}, VALUE, "blocks_out"),
    ("LOAD_FOLD", {"pad_bytes": 1 << 24}, VALUE, "pad_bytes"),
    ("LOAD_FOLD", {"ddr_addr": POOL - 11}, BOUNDS, "ddr_addr"),
    ("LOAD_FOLD", {"out_addr": SRAM - 112}, BOUNDS, "out_addr"),
    *(
        (name, {f: 0}, VALUE, f)
        for name in ("CONV", "DEPTHWISE", "POOL")
        for f in (*WINDOW, *HELD, "out_h", "out_w", "blocks_out")
    ),
    ("CONV", {"blocks_in": 0}, VALUE, "blocks_in"),
    *((name, {"stage": 2}, VALUE, "stage") for name in ("CONV", "DEPTHWISE")),
    *((name, {"stage": 3}, VALUE, "stage") for name in ("CONV", "DEPTHWISE", "ELTWISE")),
    *(("CONV", {"stage": 1, "fraction_bits": f}, VALUE, "fraction_bits") for f in (0, 4, 12, 15)),
    ("CONV", {"stage": 1, "fraction_bits": 8, "tail_low_is_input": 1, "tail_low": 1}, VALUE, "tail_low"),
    ("CONV", {"stage": 1, "fraction_bits": 8, "table_addr": 6}, ALIGN, "table_addr"),
    ("CONV", {"stage": 1, "fraction_bits": 8, "table_addr": SRAM - 512}, BOUNDS, "table_addr"),
    *(
        ("CONV", {f: 1}, VALUE, f)
        for f in ("fraction_bits", "tail_low_is_input", "tail_high_is_input", "tail_low", "tail_high", "table_addr")
    ),
    *(
        (name, {f: LEGAL[name][f] + 8}, ALIGN, f)
        for name in ("CONV", "DEPTHWISE")
        for f in (
            "in_addr",
            "in_row_stride",
            "in_pixel_stride",
            "out_addr",
            "out_row_stride",
            "out_pixel_stride",
            "weight_addr",
            "bias_addr",
        )
    ),
    *(
        (name, {f: LEGAL[name][f] + 8}, ALIGN, f)
        for name in ("CONV", "DEPTHWISE", "POOL", "ELTWISE")
        for f in ("requant_addr",)
    ),
    *(
        (name, {"in_addr": SRAM - 112}, BOUNDS, "in_addr")
        for name in ("CONV", "DEPTHWISE", "POOL", "ELTWISE", "RESIZE", "COPY")
    ),
    *(
        (name, {"out_addr": SRAM - 112}, BOUNDS, "out_addr")
        for name in ("CONV", "DEPTHWISE", "POOL", "ELTWISE", "RESIZE", "COPY")
    ),
    *(
        (name, {"out_pixel_stride": 16}, VALUE, "out_pixel_stride")
        for name in ("CONV", "DEPTHWISE", "POOL", "ELTWISE", "RESIZE", "COPY")
    ),
    *((name, {"out_row_stride": 32}, VALUE, "out_row_stride") for name in ("CONV", "POOL", "COPY")),
    ("CONV", {"requant_addr": SRAM - 240}, BOUNDS, "requant_addr"),
    *(("CONV", {f: 16}, VALUE, f) for f in SECOND),
    ("CONV", {"sum_stage": 2}, VALUE, "sum_stage"),
    *(("CONV", RESIDUAL | {"sum_stage": s}, VALUE, "sum_stage") for s in (1, 3)),
    *(("CONV", RESIDUAL | {f: RESIDUAL[f] + 8}, ALIGN, f) for f in SECOND),
    ("CONV", RESIDUAL | {"b_addr": SRAM - 112}, BOUNDS, "b_addr"),
    *(("CONV", RESIDUAL | {f: SRAM - 240}, BOUNDS, f) for f in ("operand_addr", "sum_requant_addr")),
    ("CONV", {"weight_addr": SRAM - 1008}, BOUNDS, "weight_addr"),
    ("CONV", {"kernel_h": 65535, "kernel_w": 65535, "blocks_in": 2}, BOUNDS, "weight_addr"),
    ("CONV", {"bias_addr": SRAM - 112}, BOUNDS, "bias_addr"),
    ("CONV", {"pad_addr": SRAM - 16}, BOUNDS, "pad_addr"),
    ("DEPTHWISE", {"weight_addr": SRAM - 16}, BOUNDS, "weight_addr"),
    ("POOL", {"kind": 2}, VALUE, "kind"),
    ("POOL", {"shift": 48}, VALUE, "shift"),
    ("POOL", {"pad_top": 2}, VALUE, "pad_top"),
    ("POOL", {"pad_left": -1}, VALUE, "pad_left"),
    ("POOL", {"kernel_h": 2, "pad_top": 1, "single": 1, "in_h": 3}, VALUE, "single"),
    *(("POOL", {"kind": 0}, VALUE, f) for f in ("weight_addr",)),
    ("POOL", {"weight_addr": SRAM - 48}, BOUNDS, "weight_addr"),
    ("POOL", {"operand_addr": SRAM - 240}, BOUNDS, "operand_addr"),
    ("ELTWISE", {"b_addr": 8}, ALIGN, "b_addr"),
    ("ELTWISE", {"b_addr": SRAM - 112}, BOUNDS, "b_addr"),
    ("ELTWISE", {"b_addr": SRAM - 96, "broadcast_b": 1, "b_row_stride": 96, "b_pixel_stride": 0}, BOUNDS, "b_addr"),
    ("ELTWISE", {"bias_addr": 16}, VALUE, "bias_addr"),
    ("ELTWISE", {"kind": 3}, VALUE, "b_addr"),
    ("ELTWISE", {"operand_addr": SRAM - 240}, BOUNDS, "operand_addr"),
    ("RESIZE", {"row_table_addr": SRAM}, BOUNDS, "row_table_addr"),
    ("RESIZE", {"col_table_addr": 8200}, ALIGN, "col_table_addr"),
    ("RESIZE", {"in_h": 0}, VALUE, "in_h"),
]


@pytest.mark.parametrize(
    ("name", "change", "code", "field"), ILLEGAL, ids=lambda v: v if isinstance(v, str) else str(v)
)
def test_illegal_fields_are_refused(name: str, change: dict[str, int], code: str, field: str) -> None:
    sram = np.arange(SRAM, dtype=np.int64).astype(np.int8)
    outcome = execute(name, LEGAL[name] | change, sram)
    assert (outcome.code, outcome.field, outcome.instruction) == (code, field, 0)
    assert np.array_equal(outcome.sram, sram) and (outcome.pool == 1).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("LOAD", {"ddr_addr": POOL - 128}),
        ("LOAD_FOLD", {"ddr_addr": POOL - 12}),
        ("STORE", {"sram_addr": SRAM - 128}),
        ("CONV", {"out_addr": SRAM - 128}),
        ("CONV", {"weight_addr": SRAM - 1024}),
        ("ELTWISE", {"b_addr": SRAM - 97, "broadcast_b": 1, "b_row_stride": 96, "b_pixel_stride": 0}),
        ("POOL", {"weight_addr": SRAM - 64}),
        ("RESIZE", {"row_table_addr": SRAM - 16}),
    ],
)
def test_the_last_byte_is_still_legal(name: str, change: dict[str, int]) -> None:
    """Bounds are exact: one step further each of these is refused above."""
    assert execute(name, LEGAL[name] | change).code == "OK"


def _record(dtype: np.dtype, lane: int, **values: int) -> np.ndarray:
    records = np.zeros(32, dtype)
    for key, value in values.items():
        records[key][lane] = value
    return records


@pytest.mark.parametrize(
    ("name", "change", "address", "records", "field"),
    [
        *(
            ("CONV", {}, 2048, _record(REQUANT_DTYPE, lane, s0=s), "requant_addr")
            for lane in (0, 31)
            for s in (48, -1, 127)
        ),
        ("DEPTHWISE", {}, 2048, _record(REQUANT_DTYPE, 17, s0=48), "requant_addr"),
        ("ELTWISE", {"stage": 2}, 2048, _record(REQUANT_DTYPE, 17, s0=-128), "requant_addr"),
        ("CONV", {"stage": 1, "fraction_bits": 8}, 2048, _record(REQUANT_DTYPE, 5, a=48), "requant_addr"),
        ("CONV", {"stage": 1, "fraction_bits": 8}, 2048, _record(REQUANT_DTYPE, 5, b=1), "requant_addr"),
        ("CONV", RESIDUAL, 5120, _record(OPERAND_DTYPE, 20, reserved=1), "operand_addr"),
        ("CONV", RESIDUAL, 5632, _record(REQUANT_DTYPE, 20, s0=48), "sum_requant_addr"),
        ("ELTWISE", {}, 5120, _record(OPERAND_DTYPE, 31, reserved=1), "operand_addr"),
        ("POOL", {}, 5120, _record(OPERAND_DTYPE, 31, reserved=1), "operand_addr"),
        *(
            ("RESIZE", {}, address, _record(RESIZE_DTYPE, 1, **{member: value}), field)
            for address, field in ((8192, "row_table_addr"), (8208, "col_table_addr"))
            for member, value in (
                ("i0", 2),
                ("i0", -1),
                ("i1", 2),
                ("i1", -1),
                ("w1", 257),
                ("w1", -1),
                ("reserved", 1),
            )
        ),
    ],
)
def test_illegal_parameters_are_refused(
    name: str, change: dict[str, int], address: int, records: np.ndarray, field: str
) -> None:
    sram = np.zeros(SRAM, np.int8)
    raw = np.frombuffer(records.tobytes(), np.int8)
    sram[address : address + raw.size] = raw
    outcome = execute(name, LEGAL[name] | change, sram)
    assert (outcome.code, outcome.field, outcome.instruction) == ("BAD_PARAMETER", field, 0)


@pytest.mark.parametrize(("columns", "field"), [(1, "row_table_addr"), (2, "col_table_addr")])
def test_a_resize_that_overwrites_its_own_tables_stays_inside(columns: int, field: str) -> None:
    """The first pixel written turns the next record into coordinates far outside; they must not become an address."""
    sram = np.zeros(SRAM, np.int8)
    sram[:128] = 0x7F
    change = {"out_addr": 8192, "out_w": columns}
    outcome = execute("RESIZE", LEGAL["RESIZE"] | change, sram)
    assert (outcome.code, outcome.field) == ("BAD_PARAMETER", field)


def test_words_and_programs() -> None:
    reserved = bytearray(encode("COPY", **LEGAL["COPY"]))
    reserved[127] = 0x80
    assert run([bytes(reserved)]).code == "RESERVED_BITS"
    assert run([b"\x77" + bytes(127)]).code == "UNKNOWN_OPCODE"
    copy = encode("COPY", **LEGAL["COPY"])
    assert (run([copy], halt=False).code, run([copy], halt=False).instruction) == ("NO_HALT", 0)
    early = run([copy, encode("HALT"), copy])
    assert (early.code, early.instruction) == ("EARLY_HALT", 1)
    late = run([copy, copy, encode("COPY", **(LEGAL["COPY"] | {"out_h": 0}))])
    assert (late.code, late.field, late.instruction) == ("ILLEGAL_VALUE", "out_h", 2)


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A legal instruction with up to four fields replaced. Repetition counts stay small: a huge legal loop proves nothing."""
    name = draw(st.sampled_from(sorted(LEGAL)))
    fields = dict(LEGAL[name])
    candidates = [f for f in BY_NAME[name].fields if f.name not in ("rows", "cols", "in_h", "in_w")]
    for field in draw(st.lists(st.sampled_from(candidates), max_size=4)):
        low, high = field_range(field)
        if field.name.startswith("kernel"):
            high = 40
        near = [SRAM - 16, SRAM, SRAM // 2, 0, 1, 2, 15, 16, 17, high, low, high - 15]
        value = st.one_of(st.sampled_from([v for v in near if low <= v <= high]), st.integers(low, high))
        fields[field.name] = draw(value)
    return name, fields


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutations(), st.integers(0, 2**32 - 1))
def test_nothing_leaves_its_memory(case: tuple[str, dict[str, int]], seed: int) -> None:
    """Any fields, any parameter bytes: executed or refused, guard bytes around both memories untouched (reads: run under the sanitizers)."""
    name, fields = case
    random = np.random.default_rng(seed)
    sram = np.frombuffer(random.bytes(SRAM), np.int8) if seed % 2 else np.zeros(SRAM, np.int8)
    outcome: Any = execute(name, fields, sram)
    assert outcome.code in ("OK", "ILLEGAL_VALUE", "MISALIGNED", "OUT_OF_BOUNDS", "BAD_PARAMETER")
    if outcome.code != "OK":
        assert outcome.field != "none"
        assert (outcome.pool == 1).all()
