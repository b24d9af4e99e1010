"""int8 programs of the NPU DSL: type rules and their errors, integers against float64, lowering on csim and sim bit for bit; maps also in bf16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dsl_programs import PROGRAMS, in_bf16, in_int8, noise, one_node, registered
from hypothesis import given, settings
from hypothesis import strategies as st
from ladder import climb, compile_graph

from npuforge.compile.ir.errors import InstructionError, ModelError, QuantisationError
from npuforge.compile.ir.graph import Node
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.compile.steps import lanes, tile
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.dsl import kernel as k
from npuforge.hw_kernels.dsl.kernel import INT8, INT16, INT32, kernel
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram
from npuforge.quant.executor import dequantise, quantise

SHAPE = (1, 20, 12, 9)
# dB; sums of 9 values of either sign use little of the range they could have, the more so where scales are powers of two
LEAST: dict[str, dict[str, float]] = {"fine": {}, "pow2": {"row_sums": 17.0, "spread_over_channels": 22.0}}


SMALL = {  # bytes of SRAM
    "squeeze_gate": 3 << 14,
    "blurred_difference": 1 << 13,
    "pooled_twice": 3 << 12,
    "larger_smaller": 1 << 13,
    "pixel_gate": 1 << 14,
    "spread_over_channels": 1 << 14,
    "dilated_windows": 1 << 14,
}


def sqnr(found: np.ndarray, expected: np.ndarray) -> float:
    noise_power = np.square(found - expected).mean()
    return float(10 * np.log10(np.square(expected).mean() / max(noise_power, 1e-30)))


@pytest.mark.parametrize("mode", ["fine", "pow2"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_integers_are_near_the_float_meaning_and_the_devices_give_their_bits(name: str, mode: str) -> None:
    program, _ = PROGRAMS[name]
    with registered(program):
        integer = in_int8(one_node(program, SHAPE), mode)
        qgraph, graph = integer.qgraph, integer.qgraph.graph
        feeds = {t: quantise(v, qgraph.quant[t]) for t, v in noise(graph, 11).items()}
        values = [dequantise(feeds[t], qgraph.quant[t]).astype(np.float64) for t in graph.inputs]
        expected = program.trace().meaning(values)
        found = dequantise(integer.integers(feeds)["y"], qgraph.quant["y"])
        assert sqnr(found, expected) > LEAST[mode].get(name, 25.0)
        binary = compile_graph(integer, "nf-b1024" if mode == "fine" else "nf-b4096")
        random = np.random.default_rng(5)
        for given_bytes in (feeds, {t: random.integers(-128, 128, v.shape).astype(np.int8) for t, v in feeds.items()}):
            assert climb(integer, binary, given_bytes, threads=(1,)) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_maps_in_bf16(name: str) -> None:
    program, _ = PROGRAMS[name]
    with registered(program):
        graph = one_node(program, SHAPE)
        ladder = in_bf16(graph, "nf-b1024-bf16")
        feeds = noise(graph, 3)
        assert ladder.climb(ladder.binary(), feeds, (("csim", 1), ("sim", 1))) == []
        found = LaneExecutor(ladder.qgraph, ladder.arch).run_outputs(feeds)["y"]
        assert sqnr(found, program.trace().meaning([feeds[t].astype(np.float64) for t in graph.inputs])) > 36.0


@pytest.mark.parametrize("mode", ["fine", "pow2"])
def test_an_input_of_one_pixel_is_broadcast_and_other_channels_are_refused(mode: str) -> None:
    @kernel
    def scaled(gate: Any, x: Any) -> Any:
        return k.vadd(k.cast(k.vmul(gate, x), x.dtype), k.vmuls(x, 0.5))

    with registered(scaled):
        integer = in_int8(one_node(scaled, (1, 20, 1, 1), (1, 20, 12, 9)), mode)
        random = np.random.default_rng(5)
        feeds = {"x0": (1, 1, 1, 20), "x1": (1, 12, 9, 20)}
        given_bytes = {t: random.integers(-128, 128, s).astype(np.int8) for t, s in feeds.items()}
        assert climb(integer, compile_graph(integer, "nf-b1024"), given_bytes, threads=(1,)) == []
        with pytest.raises(ModelError, match="scaled takes 2 maps N, C, H, W of equal N and C"):
            one_node(scaled, (1, 20, 1, 1), (1, 8, 12, 9))


@pytest.mark.parametrize("name", SMALL)
def test_bands_and_cuts_in_a_small_sram(name: str) -> None:
    """Maps that stream: windows read the rows around a band, reductions the whole map, channel blocks go one by one."""
    program, _ = PROGRAMS[name]
    small = replace(load("nf-b1024"), name="small", sram_bytes=SMALL[name])
    with registered(program):
        integer = in_int8(one_node(program, (1, 40, 37, 24)), "fine")
        graph = integer.qgraph.graph
        (plan,) = tile.run(lanes.run(integer.qgraph, small)).partitions[0].plans
        assert len(plan.work.bands) > 1 and (len(plan.work.cuts) > 1 or name == "pixel_gate")
        binary = compile_graph(integer, small)
        feeds = {t: quantise(v, integer.qgraph.quant[t]) for t, v in noise(graph, 11).items()}
        assert climb(integer, binary, feeds, threads=(1, 2)) == []


# ---- one instruction each: half a step of the output, one more for its multiplier's 15 bits
Unary = Callable[[Any], Any]
ONE_INSTRUCTION: dict[str, Unary] = {
    "vmuls then vadds": lambda x: k.vadds(k.vmuls(x, -1.75), 0.3),
    "vrelu": k.vrelu,
    "vabs": k.vabs,
    "vlrelu": lambda x: k.vlrelu(x, 0.125),
    "limits": lambda x: k.vmins(k.vmaxs(x, -0.5), 0.75),
    "a square": lambda x: k.vmul(x, x),
    "difference to itself scaled": lambda x: k.vsub(x, k.vmuls(x, 0.25)),
    "reduce_mean": k.reduce_mean,
    "reduce_sum of rows": lambda x: k.reduce_sum(x, 3),
    "pooling2d": lambda x: k.pooling2d(x, 3, 2, "AVG"),
    "mean of valid pixels": lambda x: k.pooling2d(x, 3, 2, "AVG", 1),
    "sum of valid pixels": lambda x: k.pooling2d(x, (2, 3), 1, "SUM", 1, (1, 2)),
    "depthwise": lambda x: k.vrelu(k.depthwise_conv2d(x, [[0.5, -1.0, 0.25]], pad=(0, 1))),
    "curve": lambda x: k.vmuls(k.vtanh(k.cast(x, INT16, fraction_bits=9)), 3.0),
    "vexp": lambda x: k.vexp(k.cast(k.vmuls(x, -1.0), x.dtype, high=2.0)),
}


@pytest.mark.parametrize("name", ONE_INSTRUCTION)
def test_one_instruction_is_within_a_step_of_float64(name: str) -> None:
    def program(x: Any) -> Any:
        return ONE_INSTRUCTION[name](x)

    one = kernel(program)
    with registered(one):
        integer = in_int8(one_node(one, (1, 5, 7, 8)), "fine")
        qgraph = integer.qgraph
        feeds = {t: quantise(v, qgraph.quant[t]) for t, v in noise(qgraph.graph, 11).items()}
        x = dequantise(feeds["x0"], qgraph.quant["x0"]).astype(np.float64)
        quant = qgraph.quant["y"]
        scale, zero = (v[:, None, None] for v in (quant.scale, quant.zero_point))
        expected = np.clip(one.meaning().meaning([x]), (-128 - zero) * scale, (127 - zero) * scale)
        error = np.abs(dequantise(integer.integers(feeds)["y"], quant) - expected) / scale
        slack = {"vexp": 1.5, "depthwise": 1.0}.get(name, 0.0)  # of the rounded argument, of weights of 8 bits
        assert error.max() <= 1.5 + slack, error.max()


# ---- what the tracer joins
def kinds(function: Callable[..., Any], dtype: k.Dtype = INT8) -> list[str]:
    return [o.kind for o in k.optimise(kernel(function).trace({}, dtype)).operations if o.kind != "input"]


def test_one_instruction_takes_all_that_its_stage_has() -> None:
    assert kinds(lambda x, y: k.vrelu(k.vmuls(k.vadd(x, k.vmuls(y, 3.0)), 0.5))) == ["scale", "add"]
    assert kinds(lambda x: k.vmuls(k.vtanh(k.vadds(k.vmuls(x, 2.0), 1.0)), 0.5)) == ["scale", "affine"]
    assert kinds(lambda x: k.cast(k.cast(k.vmul(x, x), INT8), INT8)) == ["mul"]
    assert kinds(lambda x: k.vadd(k.cast(k.vtanh(x), INT8), k.cast(k.vtanh(x), INT8))) == ["affine", "add"]
    assert kinds(lambda x, y: k.vadd(k.vmin(x, y), x)) == ["max2", "scale", "add"]
    assert kinds(lambda x: k.vmuls(k.cast(k.vmul(x, x), INT8), 2.0)) == ["mul"]  # the result's scale takes the factor
    assert kinds(lambda x: k.vmuls(x, -2.0)) == ["scale", "affine"]  # bytes as they are still go to the output


# ---- type rules
def error_of(function: Callable[..., Any]) -> str:
    with pytest.raises(InstructionError) as found:
        kernel(function).trace({}, INT8)
    text = str(found.value)
    place, _, words = text.partition(": ")
    code = function.__code__
    assert place == f"{code.co_filename}:{code.co_firstlineno + 1}", text
    return words


def test_what_int8_cannot_do_is_said_at_its_line() -> None:
    def accumulator(x: Any) -> Any:
        return k.vmul(k.vmul(x, x), x)

    def two_functions(x: Any) -> Any:
        return k.vtanh(k.vabs(x))

    def two_bends(x: Any) -> Any:
        return k.vlrelu(k.vabs(x), 0.1)

    def behind_curve(x: Any) -> Any:
        return k.vadds(k.vtanh(x), 1.0)

    def addend(x: Any) -> Any:
        return k.vadds(k.vadd(x, x), 1.0)

    def pool_stage(x: Any) -> Any:
        return k.vrelu(k.reduce_mean(x))

    def channels(x: Any) -> Any:
        return k.reduce_max(x, 1)

    def mixed_axes(x: Any) -> Any:
        return k.reduce_sum(x, (1, 2))

    def padded_beyond(x: Any) -> Any:
        return k.pooling2d(x, 3, 1, "AVG", 5, 2)

    def to_bf16(x: Any) -> Any:
        return k.cast(x, k.BF16)

    def division(x: Any) -> Any:
        return k.vdiv(x, x)

    def bits(x: Any) -> Any:
        return k.vtanh(k.cast(x, INT16, fraction_bits=12))

    def no_curve(x: Any) -> Any:
        return k.cast(k.cast(x, INT16), INT8)

    def table_limits(x: Any) -> Any:
        return k.cast(k.vtanh(x), INT8, -1.0, 0.5)

    def wide(x: Any) -> Any:
        return k.reduce_max(k.cast(x, INT32))

    for function, words in (
        (accumulator, "expected an int8 tile as first operand, found int32, which exists only inside the instruction"),
        (two_functions, "vtanh: the output stage has one function; cast(tile, INT8) first"),
        (two_bends, "vlrelu: the output stage has one piecewise-linear function"),
        (behind_curve, "vadds: the instruction has no addend behind a function; cast(tile, INT8) first"),
        (addend, "vadds: the instruction has no addend behind vadd; cast(tile, INT8) first"),
        (pool_stage, "vrelu: the pooling engine has no output stage; cast(tile, INT8) first"),
        (channels, "reduce_max: the pooling engine reduces axes 2 and 3 (height, width), found (1,)"),
        (mixed_axes, "over channels, axis 1, there are only reduce_sum and reduce_mean, alone"),
        (padded_beyond, "pooling2d: expected pads smaller than the window (5, 5), found (5, 5)"),
        (to_bf16, "cast: the NPU has no instruction from int8 to bf16"),
        (division, "vdiv: the table covers [-8, 8) in steps of 1/16 and cannot hold a pole"),
        (bits, "cast: expected 5..11 fraction bits, found 12"),
        (no_curve, "cast: an int16 argument is what the table reads, not int8; apply a curve first"),
        (table_limits, "cast: the table's result has no clip"),
        (wide, "reduce_max: expected an int8 tile, found int32"),
    ):
        assert words in error_of(function)


def test_errors_that_need_scales_or_sizes_name_the_line_too() -> None:
    def large(x: Any) -> Any:
        return k.vexp(k.vmuls(x, -3.0))

    def mixed(x: Any) -> Any:
        return k.vsub(k.reduce_max(x), x)

    def one_left(x: Any) -> Any:
        return k.reduce_mean(x, 1)

    def few_first(x: Any) -> Any:
        return k.vsub(k.cast(k.reduce_sum(x, 1), x.dtype), x)

    def too_wide(x: Any) -> Any:
        return k.pooling2d(x, 30)

    for function, words in (
        (large, "vexp: the table's 16 bits hold e^x up to x = 6.87"),
        (mixed, "vsub: only the second operand may be broadcast"),
    ):
        one = kernel(function)
        with registered(one), pytest.raises(InstructionError, match=str(function.__code__.co_firstlineno + 1)) as found:
            in_int8(one_node(one, (1, 3, 6, 6)), "fine")
        assert words in str(found.value)
    for function, words in ((one_left, "the result has one channel"), (few_first, "vsub: only the second operand may")):
        with registered(kernel(function)), pytest.raises(InstructionError, match=words):
            one_node(kernel(function), (1, 3, 6, 6))
    with (
        pytest.raises(InstructionError, match="a window of 30x30 does not fit a map of 6x6"),
        registered(kernel(too_wide)),
    ):
        one_node(kernel(too_wide), (1, 3, 6, 6))


def test_bf16_exp_needs_a_bounded_argument() -> None:
    assert kinds(lambda x: k.vexp(k.vmins(k.vmaxs(x, -8.0), 8.0)), k.BF16)[-1] == "affine"
    with pytest.raises(InstructionError, match=r"the argument can be -inf..2"):
        kernel(lambda x: k.vexp(k.vmins(x, 2.0))).trace()
    x = np.linspace(-8.0, 8.0, 999)
    one = kernel(lambda x: k.vexp(k.vmins(k.vmaxs(x, -8.0), 8.0)))
    node = Node("n", "x", ["a"], ["y"])
    bits = KernelProgram(one).bits(node, [bf16.from_float32(x.astype(np.float32)).reshape(1, -1, 1)])
    given_x = bf16.to_float32(bf16.from_float32(x.astype(np.float32))).astype(np.float64)
    assert (
        np.abs(bf16.to_float32(bits).ravel() / np.exp(given_x) - 1.0).max() < 2.0**-8
    )  # half a step of 8 significant bits


def test_elu_refuses_an_alpha_that_its_tail_cannot_hold() -> None:
    with pytest.raises(
        InstructionError, match=r"velu: expected an alpha of 15 or less, found 16: the tail has 16 bits"
    ):
        kernel(lambda x: k.velu(x, 16.0)).trace()
    with pytest.raises(InstructionError, match="expected a finite number"):
        kernel(lambda x: k.velu(x, "2")).trace()


# ---- drawn programs
STEPS: list[Callable[[Any, Any], Any]] = [
    k.vadd,
    k.vsub,
    k.vmul,
    k.vmax,
    k.vmin,
    lambda x, y: k.vadds(k.vmuls(x, -0.5), 0.25),
    lambda x, y: k.vlrelu(k.vadd(x, k.vmuls(y, 2.0)), 0.2),
    lambda x, y: k.vmuls(k.vgelu(x), 2.0),
    lambda x, y: k.velu(k.vsub(y, x), 2.0),
    lambda x, y: k.verf(k.vmuls(k.vsoftplus(x) if x.dtype == k.BF16 else x, 0.75)),
    lambda x, y: k.cast(k.vmul(x, y), x.dtype, -1.0, 2.0),
    lambda x, y: k.vadd(x, k.reduce_max(y, 2)),
    lambda x, y: k.vmul(x, k.cast(k.reduce_mean(y), y.dtype)),
    lambda x, y: k.pooling2d(x, 3, 1, "MIN", 1),
    lambda x, y: k.vadd(x, k.cast(k.vmuls(k.reduce_sum(y, 1), 0.25), y.dtype)),
    lambda x, y: k.vmul(x, k.cast(k.vtanh(k.reduce_mean(k.vmuls(y, -1.5), 1)), y.dtype)),
    lambda x, y: k.depthwise_conv2d(x, [[0.25, -0.5, 0.125], [1.0, 0.0, 0.5], [0.0, 0.75, -1.0]], pad=1),
]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
    st.tuples(st.integers(1, 35), st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from(["fine", "pow2"]),
)
def test_drawn_programs_climb_the_ladder(
    steps: list[tuple[int, int, int]], size: tuple[int, int, int], mode: str
) -> None:
    def drawn(x: Any, y: Any) -> Any:
        values = [x, y]
        for which, a, b in steps:
            values.append(k.cast(STEPS[which](values[a % len(values)], values[b % len(values)]), x.dtype))
        return values[-1]

    with registered(kernel(drawn)):
        try:
            integer = in_int8(one_node(kernel(drawn), (1, *size)), mode)
        except QuantisationError as problem:
            assert "fix point" in str(problem) or "too large" in str(problem)
            return
        random = np.random.default_rng(3)
        feeds = {t: random.integers(-128, 128, (1, size[1], size[2], size[0])).astype(np.int8) for t in ("x0", "x1")}
        assert climb(integer, compile_graph(integer, "nf-b1024"), feeds, threads=(1,)) == []
        if mode == "fine":
            ladder = in_bf16(integer.qgraph.graph, "nf-b1024-bf16")
            assert ladder.climb(ladder.binary(), noise(ladder.qgraph.graph, 4), (("csim", 1), ("sim", 1))) == []
