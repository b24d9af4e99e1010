"""`pow2` integers equal the DPU's fixed-point operators: an oracle from their definition, in exact rational arithmetic, one value at a time.

The definitions are the vendor's CPU operators' (Vitis AI 3.5: conv2d-fix, eltwise-fix, pool-fix), real value = q * 2^-fix_point, DPU_ROUND = floor(x + 1/2).
Left out because they are wrong there: pool-fix MAX (a floor at 0), RELU6 and LEAKYRELU inside conv2d-fix (constant, slope 0.01); the oracle has the maximum
of the window, the accumulator's real value limited to 6, and a slope of 26/256. HardSwish: the vendor's quantiser's model of the DPU, to which our table
is close, not equal. The oracle imports nothing of ours.
"""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from networks import Builder

from npuforge.compile.ir.graph import Activation, TensorInfo
from npuforge.compile.ir.quantization import ConvParams, MoveParams, NodeParams, QGraph
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.arithmetic import apply_stage, rounding_shift
from npuforge.hw_kernels.ops.average_pool.dpu_factor import dpu_factor
from npuforge.quant import pow2
from npuforge.quant.fix_points import left_shift_max

SLOPES = {"NONE": Fraction(1), "RELU": Fraction(0), "RELU6": Fraction(0), "LEAKYRELU": Fraction(26, 256)}
ACTIVATIONS = {
    "NONE": Activation(),
    "RELU": Activation("Relu"),
    "RELU6": Activation("Clip", low=0.0, high=6.0),
    "LEAKYRELU": Activation("LeakyRelu", alpha=26 / 256),
}


# ---- the oracle


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def fixed(real: Fraction, fix_point: int) -> int:
    """int8 of a real value, DPU_ROUND."""
    return min(max(floor(real * power(fix_point) + Fraction(1, 2)), -128), 127)


def nonlinear(real: Fraction, kind: str) -> Fraction:
    real = real if real >= 0 else real * SLOPES[kind]
    return min(real, Fraction(6)) if kind == "RELU6" else real


def hard_swish(real: Fraction, fix_in: int) -> Fraction:
    """The vendor's quantiser (pytorch_nndct, hardswish.py): 8 bits in, relu6(x + 3) * 2731/16384 in 8 bits at 2^-7, and their product."""
    x = Fraction(fixed(real, fix_in)) * power(-fix_in)
    gate = fixed(min(max(x + 3, Fraction(0)), Fraction(6)) * Fraction(2731, 16384), 7)
    return x * Fraction(gate, 128)


def taps(x: np.ndarray, y: int, z: int, kernel: int, stride: int, pad: int) -> list[tuple[int, int, int, int]]:
    """(ky, kx, row, column) of the window's taps that lie in x [H, W, C]."""
    found = []
    for ky in range(kernel):
        for kx in range(kernel):
            row, column = y * stride - pad + ky, z * stride - pad + kx
            if 0 <= row < x.shape[0] and 0 <= column < x.shape[1]:
                found.append((ky, kx, row, column))
    return found


def average_coefficient(kernel_h: int, kernel_w: int) -> Fraction:
    """The published N/2^M of pool-fix AVG, searched without rounding."""
    own = {(3, 3): (7, 6), (5, 5): (10, 8), (6, 6): (7, 8), (7, 7): (21, 10), (14, 14): (21, 12)}
    if (kernel_h, kernel_w) in own:
        numerator, bits = own[kernel_h, kernel_w]
        return Fraction(numerator, 2**bits)
    area, candidates, bits = kernel_h * kernel_w, [Fraction(0)], 0
    while 2**bits < 128 * area:
        candidates.append(Fraction(floor(Fraction(2**bits, area) + Fraction(1, 2)), 2**bits))
        bits += 1
    return min(candidates, key=lambda c: abs(c - Fraction(1, area)))


# ---- our side


def integer(builder: Builder, params: NodeParams, values: list[np.ndarray]) -> np.ndarray:
    """The only node of the graph on int8 maps [H, W, C]."""
    node = builder.graph.nodes[0]
    qgraph = QGraph(builder.graph, "pow2", params={node.name: params})
    return operator.get(node).integer(node, [v[None] for v in values], qgraph)[0]


def bytes_of(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """int8 values, the ends among them; small ones as often as large ones."""
    random = np.random.default_rng(seed)
    wide = random.integers(-128, 128, shape)
    return np.where(random.random(shape) < 0.5, wide, random.integers(-3, 4, shape)).astype(np.int8)


seeds = st.integers(0, 2**32 - 1)
CASES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# ---- shift and rounding


@pytest.mark.parametrize("shift", range(0, 18))
def test_rounding_at_every_half(shift: int) -> None:
    """Every half between -130 and 130, and the integers just below and above it."""
    halves = [floor(Fraction(2 * k + 1, 2) * power(shift)) for k in range(-130, 130)]
    values = [h + near for h in halves for near in (-1, 0, 1)]
    expected = [floor(Fraction(v, 2**shift) + (Fraction(1, 2) if shift else 0)) for v in values]
    assert rounding_shift(np.array(values), shift).tolist() == expected


@pytest.mark.parametrize("kind", list(SLOPES))
@pytest.mark.parametrize("fix_out", range(-2, 13))
def test_every_half_of_a_stage(kind: str, fix_out: int) -> None:
    """An accumulator in units of 2^-9 through the whole output stage, left shifts and saturation among them."""
    b = Builder((1, 1, 1, 1))
    b.conv("c", "input", 1, 1, ACTIVATIONS[kind])
    stage = pow2.output_stage(b.graph.nodes[0], 9, fix_out, 1, 0.0)
    halves = [floor(Fraction(2 * k + 1, 2) * power(9 - fix_out)) for k in range(-132, 132)]
    sums = np.array([h + near for h in halves for near in (-1, 0, 1)], np.int64)
    if kind == "LEAKYRELU":  # halves after the slope as well
        sums = np.concatenate([sums, np.arange(-3000, 0)])
    expected = [fixed(nonlinear(Fraction(int(s)) * power(-9), kind), fix_out) for s in sums]
    assert apply_stage(sums[:, None], stage)[:, 0].tolist() == expected


# ---- convolution


@CASES
@given(
    seed=seeds,
    kind=st.sampled_from(list(SLOPES)),
    fix_in=st.integers(-2, 9),
    fix_out=st.integers(-2, 9),
    kernel=st.sampled_from([1, 2, 3]),
    stride=st.sampled_from([1, 2]),
    pad=st.sampled_from([0, 1]),
    scale=st.sampled_from([0.02, 1.0, 7.0]),
)
@example(seed=1, kind="RELU", fix_in=4, fix_out=4, kernel=3, stride=1, pad=1, scale=1.0)
def test_convolution_with_bias(
    seed: int, kind: str, fix_in: int, fix_out: int, kernel: int, stride: int, pad: int, scale: float
) -> None:
    b, pad = Builder((1, 3, 4, 5), seed), min(pad, kernel - 1)
    b.conv("c", "input", 2, kernel, ACTIVATIONS[kind], strides=[stride, stride], pads=[pad] * 4)
    b.graph.constants["c.weight"] *= np.float32(scale)
    graph = b.graph
    weight, bias = graph.constants["c.weight"].transpose(0, 2, 3, 1), graph.constants["c.bias"]
    params = pow2.convolution(graph.nodes[0], graph, fix_in, fix_out, 0.0)
    assert isinstance(params, ConvParams)
    # The file says what the weights' fix point is; here: the one at which the integers are the rounded weights.
    fix_w, fix_b = pow2.weight_fix_points(weight, bias)
    fix_w = pow2.limited_weight_fix_point(fix_w, fix_b, fix_in)
    fix_b = min(fix_b, fix_in + fix_w)
    # Beyond it the quantiser lowers the output's fix point: a slope takes bits of the multipliers.
    assume(fix_out - fix_in - fix_w <= left_shift_max(graph.nodes[0].activation, len(bias), "c"))
    for index in np.ndindex(weight.shape):
        rounded = floor(Fraction(float(weight[index])) * power(fix_w) + Fraction(1, 2))
        assert params.weight[index] == min(max(rounded, -127), 127)
    bias8 = [fixed(Fraction(float(v)), fix_b) for v in bias]
    x = bytes_of(seed, (4, 5, 3))
    found = integer(b, params, [x])
    for y, z, o in np.ndindex(found.shape):
        total = Fraction(bias8[o]) * power(-fix_b)
        for ky, kx, row, column in taps(x, y, z, kernel, stride, pad):
            for i in range(3):
                total += Fraction(int(x[row, column, i]) * int(params.weight[o, ky, kx, i])) * power(-fix_in - fix_w)
        assert found[y, z, o] == fixed(nonlinear(total, kind), fix_out), (y, z, o)


# ---- element-wise add


@CASES
@given(
    seed=seeds,
    kind=st.sampled_from(["NONE", "RELU"]),
    fix_a=st.integers(-4, 9),
    fix_b=st.integers(-4, 9),
    fix_out=st.integers(-6, 11),
)
@example(seed=0, kind="NONE", fix_a=4, fix_b=4, fix_out=3)
def test_add(seed: int, kind: str, fix_a: int, fix_b: int, fix_out: int) -> None:
    b = Builder((1, 4, 6, 7))
    b.graph.tensors["other"] = b.graph.tensors["input"]
    b.add("Add", "sum", ["input", "other"], ACTIVATIONS[kind])
    params = pow2.two_operands(b.graph.nodes[0], fix_a, fix_b, fix_out, 4, 0.0)
    x, y = bytes_of(seed, (6, 7, 4)), bytes_of(seed + 1, (6, 7, 4))
    found = integer(b, params, [x, y])
    for index in np.ndindex(found.shape):
        total = Fraction(int(x[index])) * power(-fix_a) + Fraction(int(y[index])) * power(-fix_b)
        assert found[index] == fixed(nonlinear(total, kind), fix_out)


# ---- element-wise multiply


@CASES
@given(
    seed=seeds,
    kind=st.sampled_from(list(SLOPES)),
    fix_a=st.integers(-4, 9),
    fix_b=st.integers(-4, 9),
    fix_out=st.integers(-8, 13),
    other=st.sampled_from([(6, 7, 4), (1, 1, 4), (6, 7, 1), (1, 1, 1)]),
)
@example(seed=0, kind="NONE", fix_a=4, fix_b=4, fix_out=7, other=(6, 7, 4))
@example(seed=3, kind="LEAKYRELU", fix_a=7, fix_b=7, fix_out=7, other=(1, 1, 4))
@example(seed=5, kind="RELU", fix_a=-4, fix_b=-4, fix_out=13, other=(6, 7, 1))
def test_multiply(seed: int, kind: str, fix_a: int, fix_b: int, fix_out: int, other: tuple[int, int, int]) -> None:
    """eltwise-fix MUL with one map, or with one that repeats over the map's pixels or channels."""
    b = Builder((1, 4, 6, 7))
    h, w, c = other
    if kind == "LEAKYRELU":  # 256·2^k is a 16-bit multiplier; the quantiser gives no output a finer fix point
        fix_out = min(fix_out, fix_a + fix_b + 6)
    b.graph.tensors["other"] = TensorInfo("other", (1, c, h, w))
    b.add("Mul", "product", ["input", "other"], ACTIVATIONS[kind])
    params = pow2.two_operands(b.graph.nodes[0], fix_a, fix_b, fix_out, 4, 0.0)
    x, y = bytes_of(seed, (6, 7, 4)), bytes_of(seed + 1, other)
    found = integer(b, params, [x, y])
    assert found.shape == x.shape
    for row, column, channel in np.ndindex(found.shape):
        factor = int(y[min(row, h - 1), min(column, w - 1), min(channel, c - 1)])
        product = Fraction(int(x[row, column, channel]) * factor) * power(-fix_a - fix_b)
        assert found[row, column, channel] == fixed(nonlinear(product, kind), fix_out), (row, column, channel)


@pytest.mark.parametrize("fix_out", range(-2, 14))
def test_every_product(fix_out: int) -> None:
    """All 65,536 pairs of bytes at fix points 5 and 4: every half there is, saturation at both ends."""
    b = Builder((1, 1, 256, 256))
    b.graph.tensors["other"] = b.graph.tensors["input"]
    b.add("Mul", "product", ["input", "other"])
    params = pow2.two_operands(b.graph.nodes[0], 5, 4, fix_out, 1, 0.0)
    every = np.arange(-128, 128).astype(np.int8)
    x, y = (np.ascontiguousarray(m)[..., None] for m in np.meshgrid(every, every))
    found = integer(b, params, [x, y])
    by_product = {p: fixed(Fraction(p) * power(-9), fix_out) for p in np.unique(x.astype(int) * y).tolist()}
    expected = np.vectorize(by_product.__getitem__)(x.astype(int) * y)
    assert np.array_equal(found, expected)


# ---- HardSwish, which a DPU approximates


@pytest.mark.parametrize("fix_out", range(2, 7))
def test_hard_swish_is_within_a_few_steps_of_the_dpus(fix_out: int) -> None:
    """docs/targets.md: at most 3 steps of the output; the DPU's gate ends at 127/128 and its input has 8 bits."""
    b = Builder((1, 1, 1, 1))
    b.conv("c", "input", 1, 1, Activation("HardSwish"))
    largest = 2.0 ** (7 - fix_out)  # what the output's int8 covers
    stage = pow2.output_stage(b.graph.nodes[0], 12, fix_out, 1, largest)
    sums = np.arange(-int(largest * 2**12), int(largest * 2**12), 5)
    found = apply_stage(sums[:, None], stage)[:, 0].tolist()
    fix_in = min(fix_out, 5)  # as the fix form has it
    dpu = [fixed(hard_swish(Fraction(int(s), 2**12), fix_in), fix_out) for s in sums]
    exact = [float(Fraction(int(s), 2**12)) for s in sums]
    ideal = [max(-128, min(127, x * min(max(x + 3, 0.0), 6.0) / 6 * 2.0**fix_out)) for x in exact]
    assert max(abs(a - c) for a, c in zip(found, ideal, strict=True)) < 1.01
    assert 0 < max(abs(a - c) for a, c in zip(found, dpu, strict=True)) <= 3


# ---- pooling


@pytest.mark.parametrize("kernel_h", range(1, 18))
def test_average_coefficient(kernel_h: int) -> None:
    for kernel_w in range(1, 18):
        numerator, shift = dpu_factor(kernel_h, kernel_w)
        assert Fraction(numerator, 2**shift) == average_coefficient(kernel_h, kernel_w)


@CASES
@given(
    seed=seeds,
    fix_in=st.integers(-4, 9),
    step=st.integers(-9, 9),
    kernel=st.integers(1, 7),
    stride=st.sampled_from([1, 2]),
    pad=st.sampled_from([0, 1]),
)
@example(seed=0, fix_in=4, step=0, kernel=2, stride=2, pad=0)
@example(seed=0, fix_in=4, step=0, kernel=3, stride=1, pad=1)
def test_average_pool(seed: int, fix_in: int, step: int, kernel: int, stride: int, pad: int) -> None:
    """Included pads are zeros: the DPU divides by the whole window everywhere."""
    b, pad = Builder((1, 2, 7, 8)), min(pad, kernel - 1)
    attrs = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [pad] * 4, "count_include_pad": 1}
    b.add("AveragePool", "mean", ["input"], **attrs)
    params = pow2.average_pool(b.graph.nodes[0], b.graph, fix_in, fix_in + step)
    x = bytes_of(seed, (7, 8, 2))
    found = integer(b, params, [x])
    for y, z, channel in np.ndindex(found.shape):
        total = sum(int(x[row, column, channel]) for _, _, row, column in taps(x, y, z, kernel, stride, pad))
        mean = total * average_coefficient(kernel, kernel) * power(-fix_in)
        assert found[y, z, channel] == fixed(mean, fix_in + step)


@CASES
@given(seed=seeds, kernel=st.integers(1, 5), stride=st.sampled_from([1, 2]), pad=st.sampled_from([0, 1]))
@example(seed=0, kernel=3, stride=1, pad=1)
def test_max_pool(seed: int, kernel: int, stride: int, pad: int) -> None:
    """The largest value of the window, negative ones too; pads take no part."""
    b, pad = Builder((1, 2, 7, 8)), min(pad, kernel // 2)
    b.add("MaxPool", "top", ["input"], kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4)
    x = np.minimum(bytes_of(seed, (7, 8, 2)), 40 if seed % 2 else -1)
    found = integer(b, MoveParams(), [x])
    for y, z, channel in np.ndindex(found.shape):
        values = [int(x[row, column, channel]) for _, _, row, column in taps(x, y, z, kernel, stride, pad)]
        assert found[y, z, channel] == max(values)
