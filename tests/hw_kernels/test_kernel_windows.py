"""Windows of NPU-DSL programs: their float64 meaning against ONNX Runtime, weights per channel on the devices, what is refused; missing attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from dsl_programs import in_bf16, in_int8, noise, one_node, registered
from hypothesis import given, settings
from hypothesis import strategies as st
from ladder import climb, compile_graph
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.dsl import kernel as k
from npuforge.hw_kernels.dsl.kernel import kernel
from npuforge.quant.executor import quantise

CHANNELS = 20


def in_onnx_runtime(op: str, x: np.ndarray, weights: np.ndarray | None = None, **attributes: Any) -> np.ndarray:
    """One node of ONNX, float32."""
    constants = [] if weights is None else [numpy_helper.from_array(weights.astype(np.float32), "w")]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *(["w"] if constants else [])], ["y"], **attributes)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@settings(max_examples=40, deadline=None)
@given(
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    share=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_windows_mean_what_onnx_says(
    window: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], share: tuple[float, float]
) -> None:
    pad = tuple(int(s * (w - 1)) for s, w in zip(share, window, strict=True))  # ONNX Runtime takes no more
    x = np.random.default_rng(3).normal(size=(1, 3, 12, 11)).astype(np.float32)
    shape = {"strides": stride, "pads": [*pad, *pad], "dilations": dilation, "kernel_shape": window}
    weights = np.random.default_rng(4).normal(size=(3, 1, *window))

    def program(of: Callable[[Any], Any]) -> np.ndarray:
        return kernel(lambda x: k.cast(of(x), x.dtype)).meaning().meaning([x])

    cases = {
        "MaxPool": program(lambda x: k.pooling2d(x, window, stride, "MAX", pad, dilation)),
        "AveragePool": program(lambda x: k.pooling2d(x, window, stride, "AVG", pad, dilation)),
        "Conv": program(lambda x: k.depthwise_conv2d(x, weights[:, 0], stride, pad, dilation)),
    }
    for op, found in cases.items():
        extra = {"weights": weights, "group": 3} if op == "Conv" else {}
        expected = in_onnx_runtime(op, x, **extra, **shape)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=op)
    ones = in_onnx_runtime("Conv", x, weights=np.ones((3, 1, *window)), group=3, **shape)
    total = program(lambda x: k.pooling2d(x, window, stride, "SUM", pad, dilation))
    np.testing.assert_allclose(total, ones, rtol=1e-5, atol=1e-5)


@kernel
def own_weights(x: Any) -> Any:
    """A kernel of its own for every channel."""
    weights = np.random.default_rng(9).normal(0.0, 0.3, (CHANNELS, 3, 3))
    return k.vrelu(k.depthwise_conv2d(x, weights, 2, 2, 2))


@pytest.mark.parametrize("mode", ["fine", "pow2"])
def test_weights_of_their_own_per_channel_in_int8(mode: str) -> None:
    with registered(own_weights):
        integer = in_int8(one_node(own_weights, (1, CHANNELS, 9, 12)), mode)
        graph, quant = integer.qgraph.graph, integer.qgraph.quant
        feeds = {t: quantise(v, quant[t]) for t, v in noise(graph, 11).items()}
        assert climb(integer, compile_graph(integer, "nf-b1024"), feeds, threads=(1,)) == []


def test_weights_of_their_own_per_channel_in_bf16() -> None:
    with registered(own_weights):
        ladder = in_bf16(one_node(own_weights, (1, CHANNELS, 9, 12)), "nf-b1024-bf16")
        assert ladder.climb(ladder.binary(), noise(ladder.qgraph.graph, 3), (("csim", 1), ("sim", 1))) == []


def test_what_is_refused_says_what_to_do() -> None:
    def other_channels(x: Any) -> Any:
        return k.depthwise_conv2d(x, [[[1.0]]] * 7)

    def outside(x: Any) -> Any:
        return k.pooling2d(x, (1, 2), 1, "AVG", (0, 4), (1, 5))

    for function, words in (
        (
            other_channels,
            r"depthwise_conv2d: weights for 7 channels, the tile has 20; give one \[height\]\[width\] for all, or 20",
        ),
        (outside, "some windows have no pixel of a map of 6x3; expected one at least: less padding or dilation"),
    ):
        line = rf"{__file__}:{function.__code__.co_firstlineno + 1}: "
        with registered(kernel(function)), pytest.raises(InstructionError, match=line + words):
            one_node(kernel(function), (1, CHANNELS, 6, 3))
    ragged = kernel(lambda x: k.depthwise_conv2d(x, [[1.0, 2.0], [3.0]]))
    with pytest.raises(InstructionError, match=r"expected weights \[height\]\[width\] or"):
        ragged.trace()
    with pytest.raises(
        InstructionError, match="no engine compares lanes, leave a largest or smallest channel to a Reduce"
    ):
        kernel(lambda x: k.reduce_max(x, 1)).trace()


def test_a_missing_attribute_names_itself_and_the_remedy() -> None:
    def scaled(x: Any, *, slope: float, bias: float = 0.0) -> Any:
        return k.vadds(k.vmuls(x, slope), bias)

    place = rf"{__file__}:{scaled.__code__.co_firstlineno}: scaled: "
    with pytest.raises(InstructionError, match=place + "the node lacks the attribute slope, .* set it in the network"):
        kernel(scaled).trace({"bias": 1.0})
    assert kernel(scaled).trace({"slope": 2.0}).meaning([np.ones((1, 1, 1, 1))]) == 2.0
