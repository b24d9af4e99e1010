"""The timing model: formulas by hand, the schedule against small timelines drawn by hand, shared DDR, tokens, deadlock."""

from __future__ import annotations

import pytest

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels import arch
from npuforge.hw_kernels.isa.instructions import BY_NAME, Engine
from npuforge.hw_kernels.timing import CONV_START, TRANSFER_START, VECTOR_START, cost, schedule

SMALL, LARGE = arch.load("nf-b1024"), arch.load("nf-b4096")
MAP = {"out_h": 13, "out_w": 13, "blocks_out": 3}


def conv(taps: int = 3, **extra: int) -> dict[str, int]:
    return {**MAP, "kernel_h": taps, "kernel_w": taps, "blocks_in": 2} | extra


def load(size: int, **extra: int) -> dict[str, int]:
    return {"rows": 1, "cols": 1, "chunk": size, "ddr_row_stride": 0, "ddr_col_stride": 0} | extra


def test_convolution_is_pixels_times_taps_times_blocks() -> None:
    # 169 pixels: 85 pairs or 22 groups of eight; 9 taps, 2 x 3 blocks
    assert cost("CONV", conv(), SMALL).cycles == CONV_START + 85 * 9 * 6
    assert cost("CONV", conv(), LARGE).cycles == CONV_START + 22 * 9 * 6
    assert cost("CONV", conv(), LARGE).macs == 169 * 9 * 6 * 256


def test_a_residual_stage_costs_a_cycle_only_where_the_output_would_leave_every_cycle() -> None:
    # One block in, one tap: an output word every cycle, and the skip word needs the same port. From two products on, it is free.
    plain, summed = conv(1, blocks_in=1), conv(1, blocks_in=1, residual=1)
    assert cost("CONV", plain, LARGE).cycles == CONV_START + 22 * 3
    assert cost("CONV", summed, LARGE).cycles == CONV_START + 22 * 3 * 2
    assert cost("CONV", summed, LARGE).macs == cost("CONV", plain, LARGE).macs
    assert cost("CONV", conv(1, residual=1), LARGE) == cost("CONV", conv(1), LARGE)
    assert cost("CONV", conv(residual=1), SMALL) == cost("CONV", conv(), SMALL)


def test_vector_instructions() -> None:
    window = {"kernel_h": 3, "kernel_w": 3}
    assert cost("DEPTHWISE", MAP | window, LARGE).cycles == VECTOR_START + 22 * 9 * 3
    assert cost("POOL", MAP | window, SMALL).cycles == VECTOR_START + 85 * 9 * 3
    for name in ("ELTWISE", "COPY"):
        assert cost(name, MAP, LARGE).cycles == VECTOR_START + 22 * 3
    assert cost("RESIZE", MAP, LARGE).cycles == VECTOR_START + 22 * 3 * 2


def test_transfers_count_beats_per_run_of_bytes() -> None:
    assert cost("LOAD", load(1600), SMALL) == cost("STORE", load(1600), SMALL)
    assert cost("LOAD", load(1600), SMALL).beats == 101  # 100 beats of 16 bytes, one address beat
    scattered = load(16, rows=10, cols=10, ddr_row_stride=640, ddr_col_stride=64)
    assert cost("LOAD", scattered, SMALL).beats == 200 and cost("LOAD", scattered, SMALL).ddr_bytes == 1600
    touching = load(16, rows=10, cols=10, ddr_row_stride=160, ddr_col_stride=16)
    assert cost("LOAD", touching, SMALL).beats == 101
    fold = {"in_h": 9, "in_w": 10, "channels": 3, "ddr_row_stride": 30, "kernel_h": 3, "stride_h": 2, **MAP, "out_h": 4}
    assert cost("LOAD_FOLD", fold, SMALL).ddr_bytes == 9 * 30  # four windows of three rows, stride 2
    assert cost("LOAD_FOLD", fold, SMALL).cycles == TRANSFER_START + 4 * 13 * 3
    assert cost("LOAD_FOLD", fold, LARGE).cycles == TRANSFER_START + 4 * 13 * 3 // 2


def test_every_instruction_has_a_formula() -> None:
    everything = conv() | load(16) | {"in_h": 9, "in_w": 9, "channels": 3, "stride_h": 1}
    for name in BY_NAME:
        assert cost(name, everything, LARGE).cycles >= 1
    with pytest.raises(InstructionError, match="no formula"):
        cost("WARP", everything, LARGE)


def token(*engines: Engine) -> int:
    return sum(1 << e for e in engines)


def test_engines_overlap_unless_tokens_forbid_it() -> None:
    c, v = cost("CONV", conv(), LARGE).cycles, cost("COPY", MAP, LARGE).cycles
    free = schedule([("CONV", conv()), ("COPY", dict(MAP)), ("HALT", {})], LARGE)
    assert free.start[:2] == [0, 0] and free.cycles == c
    bound = schedule(
        [("CONV", conv(push=token(Engine.VECTOR))), ("COPY", {**MAP, "pop": token(Engine.CONV)}), ("HALT", {})], LARGE
    )
    assert bound.start[1] == c and bound.cycles == c + v
    assert bound.busy(Engine.CONV) == c and bound.busy(Engine.VECTOR) == v and bound.busy(Engine.STORE) == 0


def test_one_engine_keeps_program_order() -> None:
    timed = schedule([("COPY", dict(MAP)), ("COPY", dict(MAP))], LARGE)
    assert timed.start[1] == timed.end[0]


def test_load_and_store_share_the_bandwidth() -> None:
    alone = schedule([("LOAD", load(16000))], SMALL)
    beats = 1001
    assert alone.cycles == SMALL.ddr_latency_cycles + beats
    both = schedule([("LOAD", load(16000)), ("STORE", load(16000))], SMALL)
    assert both.end == [SMALL.ddr_latency_cycles + 2 * beats] * 2
    # A short store takes half of the bandwidth as long as it lasts, then the load has all of it.
    mixed = schedule([("LOAD", load(16000)), ("STORE", load(1600))], SMALL)
    assert mixed.end == [SMALL.ddr_latency_cycles + beats + 101, SMALL.ddr_latency_cycles + 2 * 101]
    assert schedule([("LOAD", load(16000))], LARGE).cycles == LARGE.ddr_latency_cycles + 501  # two ports


def test_deadlock_names_the_waiting_instructions() -> None:
    program = [("CONV", conv(pop=token(Engine.VECTOR))), ("COPY", {**MAP, "pop": token(Engine.CONV)})]
    with pytest.raises(InstructionError, match=r"deadlock, instructions 0 \(CONV\), 1 \(VECTOR\)"):
        schedule(program, LARGE)
