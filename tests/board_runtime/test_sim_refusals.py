"""What the simulator refuses at load and at run time, trace hooks, memory that was never written, several runs at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
import sim_cases as cases
from sim_programs import OPERAND, PWL, REQUANT, RESIZE, TABLE, Builder, Place, Stage

from npuforge.board_runtime import _native
from npuforge.compile.ir.errors import FormatError, InstructionError, UsageError
from npuforge.hw_kernels.isa.codec import encode

SRAM = 1 << 16


def load(
    code: bytes,
    *,
    pool: int = 4096,
    sram: int = SRAM,
    partitions: list[tuple[int, int]] | None = None,
    level: str = "auto",
) -> _native.sim.Simulation:
    """A simulation of raw instructions on an image of 4 KiB."""
    return _native.sim.Simulation(code, bytes(4096), pool, sram, level=level, partitions=partitions or [])


HALT = encode("HALT")
MAP = {"in_row_stride": 256, "in_pixel_stride": 16, "in_h": 8, "in_w": 8}
OUT = {"out_h": 8, "out_w": 8, "out_addr": 4096, "out_row_stride": 256, "out_pixel_stride": 16}
WINDOW = {"kernel_h": 1, "kernel_w": 1, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
PARAMETERS = {"weight_addr": 8192, "bias_addr": 16384, "pad_addr": 16640, "requant_addr": 17408}
LEGAL: dict[str, dict[str, int]] = {
    "LOAD": {
        "rows": 4,
        "cols": 2,
        "chunk": 32,
        "ddr_row_stride": 64,
        "ddr_col_stride": 32,
        "sram_row_stride": 64,
        "sram_col_stride": 32,
    },
    "STORE": {
        "region": 1,
        "rows": 4,
        "cols": 2,
        "chunk": 32,
        "ddr_row_stride": 64,
        "ddr_col_stride": 32,
        "sram_row_stride": 64,
    },
    "LOAD_FOLD": {
        "region": 1,
        "in_h": 8,
        "in_w": 8,
        "ddr_row_stride": 24,
        "channels": 3,
        "blocks_out": 1,
        **WINDOW,
        **OUT,
    },
    "CONV": {"blocks_in": 1, "blocks_out": 1, **MAP, **WINDOW, **OUT, **PARAMETERS},
    "DEPTHWISE": {"blocks_out": 1, **MAP, **WINDOW, **OUT, **PARAMETERS},
    "POOL": {"blocks_out": 1, **MAP, **WINDOW, **OUT},
    "ELTWISE": {"blocks_out": 1, **{k: v for k, v in MAP.items() if k[-2:] not in ("_h", "_w")}, **OUT}
    | {"b_addr": 32768, "b_row_stride": 256, "b_pixel_stride": 16, "operand_addr": 49152, "requant_addr": 49408},
    "RESIZE": {"blocks_out": 1, **MAP, **OUT, "row_table_addr": 8192, "col_table_addr": 8448},
    "COPY": {"blocks_out": 1, "in_row_stride": 256, "in_pixel_stride": 16, **OUT},
}
RESIDUAL = {"residual": 1, "b_addr": 32768, "b_row_stride": 256, "b_pixel_stride": 16}
RESIDUAL |= {"operand_addr": 49152, "sum_requant_addr": 49408}
AVERAGE = {"kind": 1, "weight_addr": 8192, "requant_addr": 17408, "operand_addr": 18432, "single": 1, "shift": 3}


@pytest.mark.parametrize("name", LEGAL)
def test_the_base_cases_are_legal(name: str) -> None:
    load(encode(name, **LEGAL[name]) + HALT)


@pytest.mark.parametrize("fields", [{}, {"sum_stage": 2}, {"b_addr": 4096}])
def test_residual_stages_are_legal_also_in_place_of_the_skip_tensor(fields: dict[str, int]) -> None:
    load(encode("CONV", **(LEGAL["CONV"] | RESIDUAL | fields)) + HALT)


REFUSED = [
    ("LOAD", {"region": 2}, "region"),
    ("LOAD", {"rows": 0}, "rows"),
    ("LOAD", {"chunk": 24}, "chunk"),
    ("LOAD", {"chunk": 0}, "chunk"),
    ("LOAD", {"ddr_addr": 4096}, "ddr_addr"),
    ("LOAD", {"ddr_addr": 8}, "ddr_addr"),
    ("LOAD", {"sram_addr": SRAM - 240}, "sram_addr"),
    ("LOAD", {"sram_row_stride": 0xFFFFFFF0}, "sram_addr"),
    ("LOAD", {"sram_col_stride": 8}, "sram_col_stride"),
    ("STORE", {"region": 0}, "region"),
    ("STORE", {"ddr_addr": 4096}, "ddr_addr"),
    ("LOAD_FOLD", {"channels": 5}, "channels"),
    ("LOAD_FOLD", {"channels": 0}, "channels"),
    ("LOAD_FOLD", {"dilation_w": 2}, "dilation_w"),
    ("LOAD_FOLD", {"kernel_h": 3, "kernel_w": 2}, "blocks_out"),
    ("LOAD_FOLD", {"ddr_addr": 3905}, "ddr_addr"),
    ("LOAD_FOLD", {"pad_bytes": 1 << 24}, "pad_bytes"),
    ("CONV", {"stage": 2}, "stage"),
    ("CONV", {"stage": 3}, "stage"),
    ("CONV", {"stage": TABLE, "fraction_bits": 4}, "fraction_bits"),
    ("CONV", {"stage": TABLE, "fraction_bits": 12}, "fraction_bits"),
    ("CONV", {"stage": TABLE, "fraction_bits": 5, "table_addr": SRAM - 512}, "table_addr"),
    ("CONV", {"stage": TABLE, "fraction_bits": 5, "tail_low_is_input": 1, "tail_low": 1}, "tail_low"),
    ("CONV", {"fraction_bits": 5}, "fraction_bits"),
    ("CONV", {"tail_high": 1}, "tail_high"),
    ("CONV", {"table_addr": 16}, "table_addr"),
    ("CONV", {"in_addr": 8}, "in_addr"),
    ("CONV", {"in_pixel_stride": 24}, "in_pixel_stride"),
    ("CONV", {"in_addr": SRAM - 256}, "in_addr"),
    ("CONV", {"in_h": 0}, "in_h"),
    ("CONV", {"blocks_in": 0}, "blocks_in"),
    ("CONV", {"kernel_w": 0}, "kernel_w"),
    ("CONV", {"stride_h": 0}, "stride_h"),
    ("CONV", {"dilation_h": 0}, "dilation_h"),
    ("CONV", {"out_w": 0}, "out_w"),
    ("CONV", {"out_addr": SRAM - 64}, "out_addr"),
    ("CONV", {"out_pixel_stride": 0}, "out_pixel_stride"),
    ("CONV", {"out_row_stride": 0}, "out_row_stride"),
    ("CONV", {"out_addr": 0}, "out_addr"),  # overwrites its input
    ("CONV", {"weight_addr": SRAM - 240}, "weight_addr"),
    ("CONV", {"kernel_h": 65535, "kernel_w": 65535}, "weight_addr"),
    ("CONV", {"bias_addr": SRAM - 48}, "bias_addr"),
    ("CONV", {"pad_addr": SRAM}, "pad_addr"),
    ("CONV", {"requant_addr": SRAM - 112}, "requant_addr"),
    *(("CONV", {f: 16}, f) for f in ("b_addr", "b_row_stride", "b_pixel_stride", "operand_addr", "sum_requant_addr")),
    ("CONV", {"sum_stage": 2}, "sum_stage"),
    ("CONV", RESIDUAL | {"sum_stage": 1}, "sum_stage"),
    ("CONV", RESIDUAL | {"sum_stage": 3}, "sum_stage"),
    ("CONV", RESIDUAL | {"b_addr": SRAM - 16}, "b_addr"),
    ("CONV", RESIDUAL | {"b_row_stride": 8}, "b_row_stride"),
    ("CONV", RESIDUAL | {"operand_addr": SRAM - 112}, "operand_addr"),
    ("CONV", RESIDUAL | {"sum_requant_addr": SRAM - 112}, "sum_requant_addr"),
    ("CONV", RESIDUAL | {"b_addr": 4096 + 16}, "out_addr"),  # overwrites the skip tensor where it is still read
    ("CONV", RESIDUAL | {"b_addr": 0, "out_addr": 0}, "out_addr"),  # the skip tensor is the convolution's input
    ("DEPTHWISE", {"weight_addr": SRAM}, "weight_addr"),
    ("DEPTHWISE", {"out_addr": 16}, "out_addr"),
    ("POOL", {"kind": 2}, "kind"),
    ("POOL", {"pad_top": 1}, "pad_top"),  # the first window has no valid tap
    ("POOL", {"pad_left": -1}, "pad_left"),
    ("POOL", {"shift": 1}, "shift"),
    ("POOL", {"weight_addr": 16}, "weight_addr"),
    ("POOL", {"single": 1}, "single"),
    ("POOL", AVERAGE | {"shift": 48}, "shift"),
    ("POOL", AVERAGE | {"kernel_w": 2}, "single"),
    ("POOL", AVERAGE | {"operand_addr": SRAM - 16}, "operand_addr"),
    ("ELTWISE", {"stage": 3}, "stage"),
    ("ELTWISE", {"b_addr": 8}, "b_addr"),
    ("ELTWISE", {"b_addr": SRAM - 16}, "b_addr"),
    ("ELTWISE", {"bias_addr": 16}, "bias_addr"),
    ("ELTWISE", {"kind": 3}, "b_addr"),
    ("ELTWISE", {"out_addr": 16}, "out_addr"),
    ("ELTWISE", {"out_addr": 32768 + 16}, "out_addr"),
    ("RESIZE", {"row_table_addr": SRAM - 48}, "row_table_addr"),
    ("RESIZE", {"col_table_addr": 8}, "col_table_addr"),
    ("COPY", {"blocks_out": 0}, "blocks_out"),
    ("COPY", {"out_addr": 16}, "out_addr"),
]


@pytest.mark.parametrize(("name", "change", "field"), REFUSED, ids=[f"{n}-{'-'.join(c)}" for n, c, _ in REFUSED])
def test_illegal_fields(name: str, change: dict[str, int], field: str) -> None:
    first = encode("LOAD", **LEGAL["LOAD"])
    for level in _native.sim.levels():
        with pytest.raises(InstructionError, match=rf"^instruction 1 \({name}\): {field}: ") as caught:
            load(first + encode(name, **(LEGAL[name] | change)) + HALT, level=level)
        assert "\n" not in str(caught.value)


def test_unknown_opcode_and_reserved_bits() -> None:
    with pytest.raises(InstructionError, match=r"instruction 0 \(\?\): opcode: expected a known opcode, found 153"):
        load(b"\x99" + HALT[1:] + HALT)
    for name, fields in LEGAL.items():
        words = np.frombuffer(encode(name, **fields), dtype="<u4").copy()
        words[31] = 1
        with pytest.raises(InstructionError, match=rf"\({name}\): word 31: reserved"):
            load(words.tobytes() + HALT)


def test_halt_ends_every_partition() -> None:
    copy = encode("COPY", **LEGAL["COPY"])
    with pytest.raises(InstructionError, match=r"instruction 1 .*opcode: expected HALT at the end"):
        load(copy + copy)
    with pytest.raises(InstructionError, match=r"instruction 0 .*opcode: expected HALT only at the end"):
        load(HALT + HALT)
    with pytest.raises(FormatError, match="expected all 3 in partitions, found 2"):
        load(copy + HALT + HALT, partitions=[(0, 2)])
    with pytest.raises(FormatError, match="follow each other from instruction 0 to 2"):
        load(copy + HALT, partitions=[(1, 1)])
    with pytest.raises(FormatError, match="follow each other"):
        load(copy + HALT, partitions=[(0, 2), (2, 1)])
    load(copy + HALT + HALT, partitions=[(0, 2), (2, 1)])


def test_tokens() -> None:
    give = encode("LOAD", **LEGAL["LOAD"], push=1 << 1)  # to CONV
    take = encode("CONV", **LEGAL["CONV"], pop=1 << 0)  # from LOAD
    load(give + take + HALT)
    for code, index in ((take + give + HALT, 0), (give + take + take + HALT, 2)):
        with pytest.raises(InstructionError, match=rf"instruction {index} \(CONV\): pop: waits for engine 0"):
            load(code)
    with pytest.raises(
        InstructionError, match=r"instruction 1 \(HALT\): push: "
    ):  # a token is left for the next partition
        load(give + HALT + take + HALT, partitions=[(0, 2), (2, 2)])
    with pytest.raises(InstructionError, match=r"instruction 65535 \(LOAD\): push: expected at most 65535"):
        load(give * 65536 + HALT)


def records_case(known: bool, spoil: Callable[[np.ndarray], None], what: str) -> Builder:
    """A program whose only fault is in one parameter record; `known`: its bytes come from the image."""
    b = Builder(np.random.default_rng(3), known)
    place = b.feature(np.zeros((4, 4, 16), dtype=np.int8))
    out = b.place(4, 4, 16)
    requant, operand, rows = np.zeros(16, dtype=REQUANT), np.zeros(16, dtype=OPERAND), np.zeros(4, dtype=RESIZE)
    table = np.zeros(257, dtype=np.int16)
    spoil({"requant": requant, "table": requant, "operand": operand, "resize": rows}[what])
    size = {"out_h": 4, "out_w": 4, "blocks_out": 1}
    if what == "resize":
        fields = {"row_table_addr": b.parameter(rows), "col_table_addr": b.parameter(np.zeros(4, dtype=RESIZE))}
        b.emit("RESIZE", **fields, **size, in_h=4, in_w=4, **place.fields("in"), **out.fields("out"))
    else:
        stage = Stage(TABLE, requant, table, 8) if what == "table" else Stage(PWL, requant)
        fields = b.stage(stage) | {"operand_addr": b.parameter(operand), "b_addr": place.address}
        b.emit("ELTWISE", **fields, **size, **place.fields("in"), **out.fields("out"))
    b.finish(out)
    return b


def put(name: str, value: int) -> Callable[[np.ndarray], None]:
    """Sets one member of record 3 (or the last)."""

    def spoil(records: np.ndarray) -> None:
        records[name][3] = value

    return spoil


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("what", "member", "value", "message"),
    [
        ("requant", "s0", 48, r"requant_addr: expected a shift of 0..47 in lane 3, found 48"),
        ("requant", "s0", -1, r"requant_addr: expected a shift of 0..47 in lane 3, found -1"),
        ("table", "a", 48, r"requant_addr: expected a shift of 0..47 in lane 3, found 48"),
        ("table", "b", 1, r"requant_addr: expected b = 0 in lane 3, found 1"),
        ("operand", "reserved", 5, r"operand_addr: expected reserved = 0 in lane 3, found 5"),
        ("resize", "i0", 4, r"row_table_addr: expected a source of 0..3 in record 3, found 4"),
        ("resize", "i1", -1, r"row_table_addr: expected a source of 0..3 in record 3, found -1"),
        ("resize", "w1", 257, r"row_table_addr: expected a weight of 0..256 in record 3, found 257"),
        ("resize", "reserved", 1, r"row_table_addr: expected reserved = 0 in record 3, found 1"),
    ],
)
def test_illegal_records(known: bool, what: str, member: str, value: int, message: str) -> None:
    """Refused at load where the bytes are known then, else when the instruction runs; afterwards the context works on."""
    b = records_case(known, put(member, value), what)
    for level in _native.sim.levels():
        for threads in (1, 2):
            with pytest.raises(InstructionError, match=message):
                s = _native.sim.Simulation(
                    b"".join(b.code), bytes(b.image), len(b.pool), b.sram + 64, threads=threads, level=level
                )
                assert not known, "not refused at load"
                for _ in range(3):
                    with pytest.raises(InstructionError, match=message):
                        s.run(bytes(b.pool))
                s.run(bytes(b.pool))


def test_sram_that_was_never_written_reads_as_zero() -> None:
    """In every run, whatever the run before left there."""
    rows = {"rows": 1, "cols": 1, "chunk": 4096}
    code = encode("STORE", region=1, sram_addr=8192, **rows) + encode("LOAD", region=0, sram_addr=8192, **rows) + HALT
    s = _native.sim.Simulation(code, b"\x41" * 4096, 4096, SRAM)
    for _ in range(2):
        pool, _ = s.run(b"\x77" * 4096)
        assert pool == bytes(4096)


def test_image_bytes_are_data_too() -> None:
    """A LOAD whose bytes are parameters of one instruction and pixels of another is carried out."""
    rng = np.random.default_rng(0)
    b = Builder(rng)
    raw = cases.random_int8(rng, (4, 4, 16))
    b.image += bytes(-len(b.image) % 64)
    offset = len(b.image)
    b.image += raw.tobytes()
    place = Place(b.allocate(256), 64, 16, (4, 4, 16))
    b.emit("LOAD", region=0, ddr_addr=offset, rows=1, cols=1, chunk=256, sram_addr=place.address)
    out = b.place(4, 4, 16)
    b.emit("COPY", out_h=4, out_w=4, blocks_out=1, **place.fields("in"), **out.fields("out"))
    b.finish(out).check(raw)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_trace_sees_every_instruction_as_it_ended(threads: int) -> None:
    """On-chip memory after each layer of a network, on every code path, is what the portable engines leave."""
    for seed in range(6):
        program, _ = cases.network(np.random.default_rng(seed), 4)
        every = set(range(len(program.code) // 128))
        snapshots = []
        for level in _native.sim.levels():
            s = _native.sim.Simulation(
                program.code, program.image, len(program.pool), program.sram, threads=threads, level=level
            )
            traced, memories = s.run(program.pool, trace=every)
            plain, none = s.run(program.pool)
            assert none == {}
            assert traced == plain
            assert set(memories) == every - {max(every)}  # all but HALT
            snapshots.append(memories)
        assert all(m == snapshots[0] for m in snapshots)


def test_arguments() -> None:
    with pytest.raises(UsageError, match=r"threads: expected 1..256, found 0"):
        _native.sim.Simulation(HALT, b"", 64, SRAM, threads=0)
    with pytest.raises(UsageError, match="level: expected auto, scalar, avx2 or avx512, found sse"):
        _native.sim.Simulation(HALT, b"", 64, SRAM, level="sse")
    with pytest.raises(UsageError, match="partition below 1, found 1"):
        _native.sim.Simulation(HALT, b"", 64, SRAM).run(bytes(64), partition=1)
    assert _native.sim.best_level() == _native.sim.levels()[-1]


def test_simulations_at_once() -> None:
    """Several contexts with helpers of their own, more threads than processors: each result is its own."""
    made = [cases.network(np.random.default_rng(seed), 3) for seed in range(4)]
    wrong: list[int] = []

    def work(number: int) -> None:
        program, expected = made[number]
        for _ in range(5):
            if not np.array_equal(program.run("auto", 3), expected):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
