"""Every C++ operator of the CPU partition against ONNX Runtime on random shapes, and that ONNX Runtime is not needed at run time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip(
    "npuforge.board_runtime._native", reason="the native module is not built: python setup.py build_ext --inplace"
)
from npuforge.board_runtime import _native
from npuforge.compile.ir.errors import NpuforgeError

sys.path.insert(0, str(Path(__file__).parent))
from cpu_cases import OpCase, check, run_native
from tiny_model import TinyModel

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
R = np.random.default_rng(7)


def restart() -> None:
    """Every example draws its values from the start, so that a failure replays."""
    R.bit_generator.state = np.random.default_rng(7).bit_generator.state


def x(*shape: int, scale: float = 2.0) -> np.ndarray:
    return (R.standard_normal(shape) * scale).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return (np.abs(x(*shape)) + 0.1).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(value: float) -> np.ndarray:
    return np.array(value, np.float32)


WIDE = np.concatenate([np.linspace(-90, 90, 181), [0.0, -0.0, 1e-30, -1e-30]]).astype(np.float32)
UNARY: list[tuple[str, dict[str, object], np.ndarray]] = [
    *(
        (op, {}, WIDE)
        for op in ("Sigmoid", "Tanh", "Abs", "Neg", "Floor", "Ceil", "Round", "Erf", "Relu", "Softplus", "Softsign")
    ),
    *((op, {}, WIDE) for op in ("Mish", "HardSwish", "Sign", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "Identity")),
    ("Exp", {}, np.linspace(-80, 80, 161).astype(np.float32)),
    ("Log", {}, positive(50)),
    ("Sqrt", {}, positive(50)),
    ("Reciprocal", {}, positive(50)),
    ("Round", {}, np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)),
    ("LeakyRelu", {"alpha": 0.3}, x(40)),
    ("Elu", {"alpha": 0.5}, x(40)),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.4}, x(40)),
    ("Gelu", {}, x(40)),
    ("Gelu", {"approximate": "tanh"}, x(40)),
]


@pytest.mark.parametrize(("op", "attrs", "data"), UNARY, ids=[f"{op}-{n}" for n, (op, _, _) in enumerate(UNARY)])
def test_unary(op: str, attrs: dict[str, object], data: np.ndarray) -> None:
    check(OpCase(op, [data], attrs, opset=20 if op == "Gelu" else 18))


@st.composite
def broadcast_pair(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    full = draw(st.lists(st.integers(1, 5), min_size=0, max_size=5))
    pair = []
    for _ in range(2):
        keep = draw(st.integers(0, len(full)))
        pair.append(tuple(draw(st.sampled_from([1, d])) for d in full[len(full) - keep :]))
    return pair[0], pair[1]


@QUICK
@given(
    broadcast_pair(),
    st.sampled_from(["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"]),
    st.sampled_from(["float32", "int64", "int32"]),
)
def test_binary_broadcasting(shapes: tuple[tuple[int, ...], tuple[int, ...]], op: str, dtype: str) -> None:
    restart()
    if dtype != "float32" and op in ("Pow", "Max", "Min"):
        dtype = "float32"
    a, b = (np.asarray(np.abs(R.normal(0, 3, s)) + 1).astype(dtype) for s in shapes)
    check(OpCase(op, [a, b], constant=[False, False]))


@QUICK
@given(broadcast_pair(), st.sampled_from(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]))
def test_comparison(shapes: tuple[tuple[int, ...], tuple[int, ...]], op: str) -> None:
    restart()
    a, b = (np.asarray(R.integers(-2, 3, s)).astype(np.float32) for s in shapes)
    check(OpCase(op, [a, b], constant=[False, False]))


def test_division_and_remainder_of_negative_integers() -> None:
    a, b = i64(-7, 7, -7, 7, 6), i64(2, -2, -2, 2, 3)
    check(OpCase("Div", [a, b], constant=[False, False]))
    check(OpCase("Mod", [a, b], constant=[False, False]))
    check(OpCase("Mod", [a.astype(np.float32), b.astype(np.float32)], {"fmod": 1}, constant=[False, False]))
    with pytest.raises(NpuforgeError, match="division by zero"):
        run_native(OpCase("Div", [a, i64(0)], constant=[False, False]))


def test_where_prelu_clip() -> None:
    check(OpCase("Where", [R.integers(0, 2, (3, 1)).astype(bool), x(1, 4), x(3, 4)], constant=[False] * 3))
    check(OpCase("Where", [R.integers(0, 2, (2, 3, 4)).astype(bool), f32(1.0), x(4)], constant=[False] * 3))
    check(OpCase("PRelu", [x(2, 3, 4, 4), x(3, 1, 1)]))
    check(OpCase("Clip", [x(30), f32(-0.5), f32(0.7)]))
    check(OpCase("Clip", [x(30), None, f32(0.7)]))
    check(OpCase("Clip", [x(30)], {"min": -0.25, "max": 0.5}, opset=6))


@QUICK
@given(st.data())
def test_transpose_slice_concat_split_gather(data: st.DataObject) -> None:
    restart()
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    rank, array = len(shape), x(*shape)
    check(OpCase("Transpose", [array], {"perm": list(data.draw(st.permutations(range(rank))))}))
    check(OpCase("Transpose", [array.astype(np.int64)]))
    axis = data.draw(st.integers(-rank, rank - 1))
    size = shape[axis]
    start, end = data.draw(st.integers(-size - 2, size + 2)), data.draw(st.integers(-size - 2, size + 2))
    step = data.draw(st.sampled_from([1, 2, 3, -1, -2]))
    check(OpCase("Slice", [array, i64(start), i64(end), i64(axis), i64(step)]))
    check(OpCase("Slice", [array], {"starts": [start], "ends": [end], "axes": [axis % rank]}, opset=9))
    other = list(shape)
    other[axis] = data.draw(st.integers(1, 4))
    check(OpCase("Concat", [array, x(*other), array], {"axis": axis}, constant=[False] * 3))
    cut = data.draw(st.integers(0, size))
    check(OpCase("Split", [array, i64(cut, size - cut)], {"axis": axis}, outputs=2))
    check(OpCase("Split", [array], {"axis": axis, "split": [cut, size - cut]}, outputs=2, opset=11))
    indices = R.integers(-size, size, data.draw(st.sampled_from([(), (1,), (3,), (2, 2)])))
    check(OpCase("Gather", [array, np.asarray(indices, np.int64)], {"axis": axis}))


def test_slice_of_everything_by_huge_bounds() -> None:
    check(OpCase("Slice", [x(3, 5), i64(0), i64(2**31 - 1), i64(1), i64(1)]))
    check(OpCase("Slice", [x(3, 5), i64(2**31 - 1, 1), i64(-(2**31), 3), i64(1, 0), i64(-1, 1)]))


def test_split_into_unequal_last_part() -> None:
    check(OpCase("Split", [x(7, 2)], {"axis": 0, "num_outputs": 3}, outputs=3, opset=18))
    with pytest.raises(NpuforgeError, match="add up to 5, the axis has 6"):
        run_native(OpCase("Split", [x(6)], {"split": [2, 3]}, outputs=2))


def test_views() -> None:
    array = x(2, 3, 4)
    check(OpCase("Reshape", [array, i64(0, -1)]))
    check(OpCase("Reshape", [array, i64(4, 3, 2)]))
    check(OpCase("Flatten", [array], {"axis": 2}))
    check(OpCase("Flatten", [array], {"axis": -1}))
    check(OpCase("Flatten", [array], {"axis": 0}))
    check(OpCase("Squeeze", [x(1, 3, 1, 2), i64(0, -2)]))
    check(OpCase("Squeeze", [x(1, 3, 1, 2)], {"axes": [0]}, opset=11))
    check(OpCase("Squeeze", [x(1, 3, 1, 2)]))
    check(OpCase("Unsqueeze", [array, i64(0, -1)]))
    check(OpCase("Unsqueeze", [array], {"axes": [1, 3]}, opset=11))
    with pytest.raises(NpuforgeError, match="cannot reshape 2x3x4 to 5x5"):
        run_native(OpCase("Reshape", [array, i64(5, 5)]))


def test_gathers_and_scatter() -> None:
    array = x(4, 5, 3)
    check(OpCase("GatherElements", [array, R.integers(-5, 5, (2, 6, 3))], {"axis": 1}, constant=[False, False]))
    check(OpCase("GatherND", [array, np.array([[0, 1], [3, -1], [2, 2]], np.int64)], constant=[False, False]))
    check(OpCase("GatherND", [array, np.array([[[1], [2]]], np.int64)], constant=[False, False]))
    check(OpCase("ScatterND", [array, np.array([[0, 1], [3, 4]], np.int64), x(2, 3)], constant=[False, True, False]))
    check(OpCase("ScatterND", [array, np.array([[-1]], np.int64), x(1, 5, 3)], constant=[False, True, False]))
    with pytest.raises(NpuforgeError, match="index 4 is outside an axis of 4"):
        run_native(OpCase("Gather", [array, i64(4)]))
    with pytest.raises(NpuforgeError, match="index -6 is outside an axis of 5"):
        run_native(OpCase("GatherND", [array, np.array([[0, -6]], np.int64)], constant=[False, False]))


def test_expand_tile_pad_cast_shape() -> None:
    check(OpCase("Expand", [x(3, 1), i64(2, 1, 4)]))
    check(OpCase("Tile", [x(2, 3), i64(2, 3)]))
    for mode in ("constant", "reflect", "edge"):
        check(OpCase("Pad", [x(1, 2, 4, 5), i64(0, 0, 1, 2, 0, 0, 2, 3)], {"mode": mode}))
    check(OpCase("Pad", [x(3, 4), i64(0, -1, 1, 1), f32(2.5)]))
    check(OpCase("Pad", [x(3, 4)], {"pads": [1, 0, 0, 2], "value": -1.0}, opset=9))
    check(OpCase("Pad", [x(3, 4), i64(1, 2), None, i64(1)], opset=18))
    values = np.array([-2.7, -1.0, 0.0, 0.4, 1.0, 3.9], np.float32)
    for to in (1, 6, 7, 9):
        check(OpCase("Cast", [values], {"to": to}))
        check(OpCase("Cast", [values.astype(np.int64)], {"to": to}))
    check(OpCase("Cast", [np.array([True, False])], {"to": 1}))
    check(OpCase("Shape", [x(2, 3, 4)]))
    check(OpCase("Shape", [x(2, 3, 4)], {"start": -2, "end": 3}))
    check(OpCase("Size", [x(2, 3, 4)]))


@QUICK
@given(st.data())
def test_softmax_reductions_arg(data: st.DataObject) -> None:
    restart()
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    rank, array = len(shape), x(*shape, scale=5.0)
    axis = data.draw(st.integers(-rank, rank - 1))
    check(OpCase("Softmax", [array], {"axis": axis}))
    check(OpCase("LogSoftmax", [array], {"axis": axis}), atol=2e-5)
    keep = data.draw(st.integers(0, 1))
    axes = sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=1)))
    for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSum"):
        attrs = {"keepdims": keep}
        check(OpCase(op, [array, i64(*axes)], attrs, opset=18), atol=2e-5)
        check(OpCase(op, [array], {**attrs, "axes": axes}, opset=11), atol=2e-5)
    check(OpCase("ReduceSum", [array], {"keepdims": keep}), atol=2e-5)
    ties = np.round(array / 3).astype(np.float32)
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            check(OpCase(op, [ties], {"axis": axis, "keepdims": keep, "select_last_index": last}))
    check(
        OpCase("TopK", [ties, i64(data.draw(st.integers(0, shape[axis])))], {"axis": axis, "largest": keep}, outputs=2)
    )
    check(OpCase("LpNormalization", [array], {"axis": axis, "p": 1 + keep}))


def test_matmul_gemm_batch_normalization() -> None:
    for a, b in [
        ((4, 5), (5, 3)),
        ((5,), (5, 3)),
        ((4, 5), (5,)),
        ((5,), (5,)),
        ((2, 1, 4, 5), (3, 5, 2)),
        ((3, 4, 5), (5, 2)),
    ]:
        check(OpCase("MatMul", [x(*a), x(*b)]), atol=2e-5)
    for ta in (0, 1):
        for tb in (0, 1):
            a, b = x(*((6, 4) if ta else (4, 6))), x(*((5, 6) if tb else (6, 5)))
            check(OpCase("Gemm", [a, b, x(5)], {"transA": ta, "transB": tb, "alpha": 0.5, "beta": 2.0}), atol=2e-5)
    check(OpCase("Gemm", [x(2, 3), x(3, 4), x(2, 1)]), atol=2e-5)
    check(OpCase("Gemm", [x(2, 3), x(3, 4)]), atol=2e-5)
    check(OpCase("BatchNormalization", [x(2, 3, 4, 4), x(3), x(3), x(3), positive(3)], {"epsilon": 1e-3}), atol=2e-5)
    with pytest.raises(NpuforgeError, match="do not multiply"):
        run_native(OpCase("MatMul", [x(2, 3), x(4, 5)]))


@QUICK
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    restart()
    draw: Callable[..., int] = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    group = draw(1, 3)
    c_in, c_out = group * draw(1, 3), group * draw(1, 3)
    kernel, strides, dilations = ([draw(1, 3), draw(1, 3)] for _ in range(3))
    attrs = {"group": group, "strides": strides, "dilations": dilations}
    data_in = x(draw(1, 2), c_in, draw(8, 11), draw(8, 11))
    weight = x(c_out, c_in // group, *kernel)
    pads = [draw(0, 2) for _ in range(4)]
    check(OpCase("Conv", [data_in, weight, x(c_out)], {**attrs, "pads": pads}), atol=2e-4)
    same = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    check(OpCase("Conv", [data_in, weight], {**attrs, "auto_pad": same, "dilations": [1, 1]}), atol=2e-4)


@QUICK
@given(st.data())
def test_transposed_convolution(data: st.DataObject) -> None:
    restart()
    draw: Callable[..., int] = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    group = draw(1, 2)
    c_in, per_out = group * draw(1, 3), draw(1, 3)
    strides, kernel = [draw(1, 3), draw(1, 3)], [draw(2, 4), draw(2, 4)]
    extra = [draw(0, s - 1) for s in strides]
    pads = [draw(0, 1) for _ in range(4)]
    attrs = {"group": group, "strides": strides, "output_padding": extra}
    arrays = [x(1, c_in, draw(3, 6), draw(3, 6)), x(c_in, per_out, *kernel), x(group * per_out)]
    check(OpCase("ConvTranspose", arrays, {**attrs, "pads": pads}), atol=2e-4)
    if all(
        k >= s for k, s in zip(kernel, strides, strict=True)
    ):  # below, ONNX Runtime leaves ONNX's rule out = in * stride
        for same in ("SAME_UPPER", "SAME_LOWER"):
            check(OpCase("ConvTranspose", arrays, {**attrs, "auto_pad": same, "output_padding": [0, 0]}), atol=2e-4)


@QUICK
@given(st.data())
def test_pooling(data: st.DataObject) -> None:
    restart()
    draw: Callable[..., int] = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    kernel, strides = ([draw(1, 4), draw(1, 4)] for _ in range(2))
    pads = [draw(0, (kernel[i % 2] - 1) // 2) for i in range(4)]
    array = x(1, draw(1, 3), draw(7, 11), draw(7, 11))
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    check(OpCase("MaxPool", [array], {**attrs, "ceil_mode": draw(0, 1)}))
    check(OpCase("MaxPool", [array], {**attrs, "dilations": [draw(1, 2), draw(1, 2)]}))
    check(OpCase("AveragePool", [array], {**attrs, "count_include_pad": draw(0, 1)}))
    check(OpCase("AveragePool", [array], {**attrs, "ceil_mode": 1}))
    for op in ("GlobalMaxPool", "GlobalAveragePool"):
        check(OpCase(op, [array]))


@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["linear", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_resize(coordinates: str, mode: str) -> None:
    attrs = {"coordinate_transformation_mode": coordinates, "mode": "linear" if mode == "linear" else "nearest"}
    if mode != "linear":
        attrs["nearest_mode"] = mode
    array = x(1, 2, 5, 6)
    for scales in ([2.0, 2.0], [1.5, 0.5], [3.0, 1.0], [1.0 / 3.0, 2.2]):
        check(
            OpCase(
                "Resize", [array, None, np.array([1, 1, *scales], np.float32)], attrs, constant=[False, False, True]
            ),
            atol=1e-5,
        )
    check(OpCase("Resize", [array, None, None, i64(1, 2, 10, 3)], attrs), atol=1e-5)


def test_upsample_and_space_to_depth() -> None:
    check(
        OpCase(
            "Upsample",
            [x(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)],
            {"mode": "nearest"},
            opset=9,
            constant=[False, True],
        )
    )
    check(OpCase("SpaceToDepth", [x(1, 3, 4, 6)], {"blocksize": 2}))
    for mode in ("DCR", "CRD"):
        check(OpCase("DepthToSpace", [x(1, 12, 2, 3)], {"blocksize": 2, "mode": mode}))


@pytest.mark.parametrize("seed", range(6))
def test_non_max_suppression(seed: int) -> None:
    random = np.random.default_rng(seed)
    centre = random.uniform(0, 20, (2, 40, 2))
    size = random.uniform(1, 8, (2, 40, 2))
    form = seed % 2
    boxes = np.concatenate([centre, size] if form else [centre - size / 2, centre + size / 2], -1).astype(np.float32)
    if not form:
        boxes[:, ::3] = boxes[:, ::3][..., [2, 3, 0, 1]]  # corners the other way round
    scores = np.round(random.uniform(0, 1, (2, 3, 40)), 1).astype(np.float32)  # ties
    inputs = [boxes, scores, i64(5 + seed), np.array([0.3], np.float32), np.array([0.25], np.float32)]
    check(OpCase("NonMaxSuppression", inputs, {"center_point_box": form}, constant=[False, False, True, True, True]))


def test_operators_of_the_kit() -> None:
    """The canonical operators that ONNX does not have, against plain numpy."""
    array = x(1, 3, 4, 5)
    scale, bias = [0.5, -1.0, 2.0], [0.1, 0.2, -0.3]
    (found,) = run_native(OpCase("Affine", [array], {"scale": scale, "bias": bias}))
    np.testing.assert_allclose(
        found, array * np.reshape(scale, (3, 1, 1)) + np.reshape(bias, (3, 1, 1)), rtol=1e-6, atol=1e-6
    )
    (found,) = run_native(OpCase("ChannelGather", [array], {"indices": [2, -1, 0]}))
    np.testing.assert_array_equal(found, np.stack([array[:, 2], 0 * array[:, 0], array[:, 0]], 1))
    (found,) = run_native(
        OpCase(
            "AveragePool",
            [array],
            {
                "kernel_shape": [2, 2],
                "strides": [2, 2],
                "pads": [0, 0, 0, 1],
                "ceil_pads": [0, 0, 0, 1],
                "count_include_pad": 1,
            },
        )
    )
    np.testing.assert_allclose(found[0, :, 0, 2], array[0, :, 0:2, 4].mean(-1), rtol=1e-6)


@pytest.mark.parametrize(
    "kind",
    [
        "Relu",
        "Clip",
        "LeakyRelu",
        "PRelu",
        "Silu",
        "Sigmoid",
        "Tanh",
        "Gelu",
        "CustomGELU",
        "Mish",
        "HardSwish",
        "HardSigmoid",
        "ClipSigmoid",
    ],
)
def test_fused_activation(kind: str) -> None:
    """Against the float64 meaning that the quantiser uses."""
    from npuforge.compile.ir.graph import Activation
    from npuforge.hw_kernels.activations import apply_activation

    a, b, slope = x(1, 3, 4, 4), x(1, 3, 4, 4), np.array([0.1, 0.2, -0.3])
    alpha = 0.15 if kind == "LeakyRelu" else 0.2
    record = {"kind": kind, "alpha": alpha, "beta": 0.45, "low": -0.5, "high": 1.5, "slope": slope.tolist()}
    (found,) = run_native(OpCase("Add", [a, b], constant=[False, False]), record)
    meaning = Activation(kind, alpha=alpha, beta=0.45, low=-0.5, high=1.5, slope=slope)
    np.testing.assert_allclose(found, apply_activation((a + b).astype(np.float64), meaning), rtol=2e-5, atol=2e-6)


def test_every_operator_is_tested() -> None:
    """On this page by random shapes, or by the cases of its folder in tests/hw_kernels/test_operator_contract.py."""
    from npuforge.hw_kernels.operator import registry

    source = Path(__file__).read_text(encoding="utf-8")
    known = registry()
    missing = [
        name
        for name in _native.cpu_operators()
        if f'"{name}"' not in source and not (name in known and known[name].cases)
    ]
    assert missing == []


def test_onnx_runtime_is_not_needed(tmp_path: Path) -> None:
    """The board package runs a whole model where neither onnx nor ONNX Runtime nor protobuf can be imported."""
    (tmp_path / "model.bin").write_bytes(TinyModel(second=True).build())
    program = (
        "import sys\n"
        "for name in ('onnx', 'onnxruntime', 'npuforge.quant', 'google.protobuf'):\n"
        "    sys.modules[name] = None\n"
        "import numpy as np\n"
        "import npuforge.board_runtime.session, npuforge.board_runtime.vart\n"
        "session = npuforge.board_runtime.session.Session('.')\n"
        "outputs = session.run([np.zeros((1, 5, 4, 6), np.float32)])\n"
        "assert abs(outputs['o'][0, 0, 0] - 0.5) < 1e-6, outputs\n"
        "loaded = [m for m in sys.modules if m.split('.')[0] in ('onnx', 'onnxruntime') and sys.modules[m] is not None]\n"
        "assert not loaded, loaded\n"
    )
    import npuforge.board_runtime

    source = Path(next(iter(npuforge.board_runtime.__path__))).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, env=environment)
