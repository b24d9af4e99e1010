"""Integer semantics of the operators against slow definitions in plain Python integers, written from DESIGN section 4."""

import itertools
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.compile.ir.quantization import (
    AveragePoolParams,
    ConvParams,
    EltwiseParams,
    MoveParams,
    OutputStage,
    QGraph,
    TensorQuant,
)
from npuforge.hw_kernels import operator

SLOW = settings(max_examples=40, deadline=None)


def shifted(value: int, shift: int) -> int:
    return floor(Fraction(value, 2**shift) + (Fraction(1, 2) if shift else 0))


def clamp8(value: int, low: int = -128, high: int = 127) -> int:
    return min(max(value, low), high)


def output(acc: int, stage: OutputStage, c: int) -> int:
    if stage.kind == "direct":
        value = shifted(acc, int(stage.shift[c]))
    else:
        assert stage.m_pos is not None and stage.m_neg is not None
        value = shifted(acc * int(stage.m_neg[c] if acc < 0 else stage.m_pos[c]), int(stage.shift[c]))
    assert stage.low is not None and stage.high is not None
    return clamp8(value + int(stage.zero_point[c]), int(stage.low[c]), int(stage.high[c]))


def random_stage(random: np.random.Generator, channels: int, kind: str, shift: int) -> OutputStage:
    limits = np.sort(random.integers(-128, 128, (2, channels)), axis=0)
    return OutputStage(
        kind,
        np.clip(shift + random.integers(-2, 3, channels), 0, 47).astype(np.int8),
        random.integers(-128, 128, channels).astype(np.int8),
        m_pos=random.integers(-32768, 32768, channels).astype(np.int16),
        m_neg=random.integers(-32768, 32768, channels).astype(np.int16),
        low=limits[0].astype(np.int8),
        high=limits[1].astype(np.int8),
    )


def one_node(
    op: str, inputs: list[np.ndarray], attrs: dict[str, Any], params: Any, quant: dict[str, TensorQuant] | None = None
) -> np.ndarray:
    names = [f"x{i}" for i in range(len(inputs))]
    node = Node("node", op, names, ["y"], attrs)
    tensors = {
        n: TensorInfo(n, (x.shape[0], x.shape[3], x.shape[1], x.shape[2])) for n, x in zip(names, inputs, strict=True)
    }
    qgraph = QGraph(Graph("g", [node], tensors, {}, names, ["y"]), "fine", quant or {}, {"node": params})
    result = operator.get(node).integer(node, inputs, qgraph)
    assert result.dtype == np.int8
    return result


def int8(random: np.random.Generator, *shape: int) -> np.ndarray:
    values = random.integers(-128, 128, shape)
    extreme = random.random(shape) < 0.3
    return np.where(extreme, random.choice([-128, 127], shape), values).astype(np.int8)


GEOMETRY = st.fixed_dictionaries(
    {
        "h": st.integers(1, 6),
        "w": st.integers(1, 6),
        "kh": st.integers(1, 3),
        "kw": st.integers(1, 3),
        "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "dilations": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        "pads": st.tuples(*[st.integers(0, 2)] * 4),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def fits(g: dict[str, Any]) -> bool:
    return all(
        g[size] + g["pads"][axis] + g["pads"][axis + 2] >= g["dilations"][axis] * (g[kernel] - 1) + 1
        for axis, (size, kernel) in enumerate((("h", "kh"), ("w", "kw")))
    )


@SLOW
@given(GEOMETRY.filter(fits), st.sampled_from([(1, 3, 2), (2, 4, 6), (3, 3, 3), (5, 5, 5), (1, 1, 1), (1, 20, 1)]))
def test_conv(g: dict[str, Any], channels: tuple[int, int, int]) -> None:
    random = np.random.default_rng(g["seed"])
    group, inputs, outputs = channels
    x = int8(random, 1, g["h"], g["w"], inputs)
    weight = np.maximum(int8(random, outputs, g["kh"], g["kw"], inputs // group), -127)
    bias = random.integers(-(2**20), 2**20, outputs).astype(np.int32)
    pad = int8(random, inputs)
    stage = random_stage(random, outputs, "pwl", 22)
    attrs = {
        "kernel_shape": [g["kh"], g["kw"]],
        "strides": list(g["strides"]),
        "dilations": list(g["dilations"]),
        "pads": list(g["pads"]),
        "group": group,
    }
    y = one_node("Conv", [x], attrs, ConvParams(weight, bias, pad, stage))
    per_in, per_out = inputs // group, outputs // group
    for oy, ox, o in itertools.product(range(y.shape[1]), range(y.shape[2]), range(outputs)):
        acc = int(bias[o])
        for ky, kx, i in itertools.product(range(g["kh"]), range(g["kw"]), range(per_in)):
            iy = oy * g["strides"][0] - g["pads"][0] + ky * g["dilations"][0]
            ix = ox * g["strides"][1] - g["pads"][1] + kx * g["dilations"][1]
            channel = (o // per_out) * per_in + i
            inside = 0 <= iy < g["h"] and 0 <= ix < g["w"]
            acc += int(weight[o, ky, kx, i]) * int(x[0, iy, ix, channel] if inside else pad[channel])
        assert y[0, oy, ox, o] == output(acc, stage, o)
    expected = [
        (g[s] + g["pads"][a] + g["pads"][a + 2] - g["dilations"][a] * (g[k] - 1) - 1) // g["strides"][a] + 1
        for a, (s, k) in enumerate((("h", "kh"), ("w", "kw")))
    ]
    assert list(y.shape) == [1, *expected, outputs]


def test_conv_beyond_float32() -> None:
    """Sums above 2^24 stay exact: 1200 products of 127*127 plus an odd remainder."""
    x = np.full((1, 1, 1, 1200), 127, np.int8)
    x[..., 0] = 126
    weight = np.full((1, 1, 1, 1200), 127, np.int8)
    zero = np.zeros(1, np.int8)
    # acc = 1199*16129 + 16002 = 19354673 = 2^24.2; an identity-like stage that keeps the low bits: subtract through the bias
    bias = np.array([-19354600], np.int32)
    one = np.array([1], np.int16)
    stage = OutputStage(
        "pwl", zero, zero, m_pos=one, m_neg=one, low=np.array([-128], np.int8), high=np.array([127], np.int8)
    )
    y = one_node("Conv", [x], {"kernel_shape": [1, 1]}, ConvParams(weight, bias, np.zeros(1200, np.int8), stage))
    assert y.item() == 73


@SLOW
@given(GEOMETRY, st.tuples(st.integers(0, 1), st.integers(0, 1)), st.sampled_from([(1, 3, 2), (2, 4, 2), (3, 3, 3)]))
def test_conv_transpose(g: dict[str, Any], extra: tuple[int, int], channels: tuple[int, int, int]) -> None:
    """Scatter-add over real inputs (q - z), the independent view: acc = bias' + sum w*(q - z), bias' = bias + z*sum of all taps."""
    random = np.random.default_rng(g["seed"])
    group, inputs, outputs = channels
    h, w, kh, kw = g["h"], g["w"], g["kh"], g["kw"]
    strides, dilations, pads = g["strides"], g["dilations"], g["pads"]
    full = [(h - 1) * strides[0] + dilations[0] * (kh - 1) + 1, (w - 1) * strides[1] + dilations[1] * (kw - 1) + 1]
    size = [full[a] + extra[a] - pads[a] - pads[a + 2] for a in (0, 1)]
    if min(size) < 1:
        return
    x, zero = int8(random, 1, h, w, inputs), int8(random, inputs)
    onnx_weight = np.maximum(int8(random, inputs, outputs // group, kh, kw), -127)  # ONNX layout
    per_in, per_out = inputs // group, outputs // group
    equivalent = np.zeros((outputs, kh, kw, per_in), np.int8)
    for o, ky, kx, i in itertools.product(range(outputs), range(kh), range(kw), range(per_in)):
        equivalent[o, ky, kx, i] = onnx_weight[(o // per_out) * per_in + i, o % per_out, kh - 1 - ky, kw - 1 - kx]
    bias = random.integers(-(2**20), 2**20, outputs).astype(np.int32)
    stage = random_stage(random, outputs, "pwl", 22)
    attrs = {
        "kernel_shape": [kh, kw],
        "strides": list(strides),
        "dilations": list(dilations),
        "pads": list(pads),
        "group": group,
        "output_padding": list(extra),
    }
    y = one_node("ConvTranspose", [x], attrs, ConvParams(equivalent, bias, zero, stage))
    acc = np.zeros((full[0] + extra[0], full[1] + extra[1], outputs), np.int64)
    for iy, ix, i in itertools.product(range(h), range(w), range(inputs)):
        for ky, kx, o in itertools.product(range(kh), range(kw), range(per_out)):
            out = (i // per_in) * per_out + o
            acc[iy * strides[0] + ky * dilations[0], ix * strides[1] + kx * dilations[1], out] += int(
                onnx_weight[i, o, ky, kx]
            ) * (int(x[0, iy, ix, i]) - int(zero[i]))
    for o in range(outputs):
        channels_read = range((o // per_out) * per_in, (o // per_out + 1) * per_in)
        acc[..., o] += int(bias[o]) + sum(
            int(equivalent[o, :, :, i % per_in].astype(np.int64).sum()) * int(zero[i]) for i in channels_read
        )
    cropped = acc[pads[0] : pads[0] + size[0], pads[1] : pads[1] + size[1]]
    assert list(y.shape) == [1, *size, outputs]
    for oy, ox, o in itertools.product(range(size[0]), range(size[1]), range(outputs)):
        assert y[0, oy, ox, o] == output(int(cropped[oy, ox, o]), stage, o)


@SLOW
@given(GEOMETRY.filter(fits))
def test_max_pool(g: dict[str, Any]) -> None:
    random = np.random.default_rng(g["seed"])
    x = int8(random, 1, g["h"], g["w"], 3)
    attrs = {"kernel_shape": [g["kh"], g["kw"]]} | {k: list(g[k]) for k in ("strides", "dilations", "pads")}
    y = one_node("MaxPool", [x], attrs, MoveParams())
    for oy, ox, c in itertools.product(range(y.shape[1]), range(y.shape[2]), range(3)):
        rows = [oy * g["strides"][0] - g["pads"][0] + k * g["dilations"][0] for k in range(g["kh"])]
        columns = [ox * g["strides"][1] - g["pads"][1] + k * g["dilations"][1] for k in range(g["kw"])]
        taps = [int(x[0, r, k, c]) for r in rows for k in columns if 0 <= r < g["h"] and 0 <= k < g["w"]]
        assert y[0, oy, ox, c] == max(taps, default=-128)


@SLOW
@given(GEOMETRY.filter(fits), st.booleans())
def test_average_pool(g: dict[str, Any], single: bool) -> None:
    random = np.random.default_rng(g["seed"])
    g["pads"] = (0, 0, 0, 0) if single else tuple(min(p, g["kh"] - 1, g["kw"] - 1) for p in g["pads"])
    if g["h"] < g["kh"] or g["w"] < g["kw"]:
        return
    x = int8(random, 1, g["h"], g["w"], 3)
    factor = random.integers(1, 32768, (1 if single else g["kh"] * g["kw"], 3)).astype(np.int16)
    zero_in, zero_out = int8(random, 3), int8(random, 3)
    attrs = {"kernel_shape": [g["kh"], g["kw"]], "strides": list(g["strides"]), "pads": list(g["pads"])}
    y = one_node("AveragePool", [x], attrs, AveragePoolParams(factor, 17, zero_in, zero_out, single))
    for oy, ox, c in itertools.product(range(y.shape[1]), range(y.shape[2]), range(3)):
        rows = [oy * g["strides"][0] - g["pads"][0] + k for k in range(g["kh"])]
        columns = [ox * g["strides"][1] - g["pads"][1] + k for k in range(g["kw"])]
        taps = [int(x[0, r, k, c]) for r in rows for k in columns if 0 <= r < g["h"] and 0 <= k < g["w"]]
        m = int(factor[0 if single else len(taps) - 1, c])
        assert y[0, oy, ox, c] == clamp8(shifted((sum(taps) - len(taps) * int(zero_in[c])) * m, 17) + int(zero_out[c]))


@SLOW
@given(
    st.sampled_from(["Add", "Sub", "Mul"]),
    st.sampled_from([(2, 3, 5), (1, 1, 5), (2, 3, 1), (1, 3, 5), (2, 1, 1)]),
    st.sampled_from(["direct", "pwl"]),
    st.integers(0, 2**32 - 1),
)
def test_two_operands(op: str, shape: tuple[int, int, int], kind: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = int8(random, 1, 2, 3, 5), int8(random, 1, *shape)
    m_a, m_b = (random.integers(-32768, 32768, 5).astype(np.int16) for _ in "ab")
    z_a, z_b = int8(random, 5), int8(random, 5)
    if shape[2] == 1:
        z_b[:] = z_b[0]
    stage = random_stage(random, 5, kind, 34 if kind == "pwl" else 17)
    y = one_node(op, [a, b], {}, EltwiseParams(m_a, m_b, z_a, z_b, np.zeros(5, np.int32), stage))
    for r, k, c in itertools.product(range(2), range(3), range(5)):
        left = int(a[0, r, k, c]) - int(z_a[c])
        right = int(b[0, min(r, shape[0] - 1), min(k, shape[1] - 1), min(c, shape[2] - 1)]) - int(z_b[c])
        if op == "Mul":
            d = left * right * int(m_a[c])
        else:
            d = int(m_a[c]) * left + int(m_b[c]) * right * (1 if op == "Add" else -1)
        assert y[0, r, k, c] == output(d, stage, c)


@SLOW
@given(st.integers(0, 2**32 - 1))
def test_affine(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, m, z = int8(random, 1, 2, 2, 4), random.integers(-32768, 32768, 4).astype(np.int16), int8(random, 4)
    addend = random.integers(-(2**30), 2**30, 4).astype(np.int32)
    stage = random_stage(random, 4, "pwl", 36)
    y = one_node("Affine", [x], {}, EltwiseParams(m, m, z, z, addend, stage))
    for r, k, c in itertools.product(range(2), range(2), range(4)):
        assert y[0, r, k, c] == output(int(m[c]) * (int(x[0, r, k, c]) - int(z[c])) + int(addend[c]), stage, c)


def test_linear_resize_by_hand() -> None:
    # 2 -> 4 columns, half_pixel: sources -0.25 (clamped to 0), 0.25, 0.75, 1.25 (clamped to 1); weights 0, 64, 192, 0 of 256
    x = np.array([[[[10], [-5]]]], np.int8)
    attrs = {"mode": "linear", "coordinate_transformation_mode": "half_pixel", "sizes": [1, 4], "scales": [1.0, 2.0]}
    y = one_node("Resize", [x], attrs, MoveParams())
    # 10*0.75 - 5*0.25 = 6.25 -> 6; 10*0.25 - 5*0.75 = -1.25 -> -1
    assert y.ravel().tolist() == [10, 6, -1, -5]


@SLOW
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(["half_pixel", "align_corners"]),
    st.integers(0, 99),
)
def test_linear_resize(h: int, w: int, oh: int, ow: int, coordinates: str, seed: int) -> None:
    x = int8(np.random.default_rng(seed), 1, h, w, 2)
    attrs = {
        "mode": "linear",
        "coordinate_transformation_mode": coordinates,
        "sizes": [oh, ow],
        "scales": [oh / h, ow / w],
    }
    y = one_node("Resize", [x], attrs, MoveParams())

    def source(position: int, size: int, out: int) -> tuple[int, int, int]:
        if coordinates == "half_pixel":
            at = (position + Fraction(1, 2)) * Fraction(size, out) - Fraction(1, 2)
        else:
            at = Fraction(position * (size - 1), out - 1) if out > 1 else Fraction(0)
        at = min(max(at, Fraction(0)), Fraction(size - 1))
        low = floor(at)
        return low, min(low + 1, size - 1), floor((at - low) * 256 + Fraction(1, 2))

    for oy, ox, c in itertools.product(range(oh), range(ow), range(2)):
        (y0, y1, wy), (x0, x1, wx) = source(oy, h, oh), source(ox, w, ow)
        total = sum(
            fy * fx * int(x[0, r, k, c]) for r, fy in ((y0, 256 - wy), (y1, wy)) for k, fx in ((x0, 256 - wx), (x1, wx))
        )
        assert y[0, oy, ox, c] == shifted(total, 16)


def test_moves() -> None:
    x = np.arange(-8, 8, dtype=np.int8).reshape(1, 2, 2, 4)
    quant = {"y": TensorQuant(np.ones(3), np.array([5, -7, 9], np.int32))}
    y = one_node("ChannelGather", [x], {"indices": [3, -1, 0]}, MoveParams(), quant)
    assert y[0, 1, 0].tolist() == [3, -7, 0]  # the pixel holds 0, 1, 2, 3
    y = one_node("SpaceToDepth", [x], {"blocksize": 2}, MoveParams())
    assert y.shape == (1, 1, 1, 16) and y.ravel().tolist() == list(range(-8, 8))
    y = one_node("Concat", [x, x[..., :1]], {"axis": 1}, MoveParams())
    assert y[0, 0, 0].tolist() == [-8, -7, -6, -5, -8]


def test_every_activation_kind_is_declared() -> None:
    from npuforge.hw_kernels.activations import is_supported

    curves = ("Silu", "Sigmoid", "Tanh", "Gelu", "CustomGELU", "Mish", "HardSwish", "ClipSigmoid", "Softplus", "Erf")
    assert all(is_supported(Activation(kind)) for kind in ("none", "Relu", "Clip", "LeakyRelu", "PRelu", *curves))
    assert is_supported(Activation("HardSigmoid", alpha=0.2, beta=0.5))
    assert not is_supported(Activation("HardSigmoid", alpha=0.05, beta=0.5))  # 0.05*8 + 0.5 = 0.9: no constant tail
    assert not is_supported(Activation("Sin"))  # periodic: no tail
