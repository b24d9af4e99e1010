"""One network written in the form of every operator set from 7 to the newest that both onnx and ONNX Runtime know: same graph, same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

NEWEST = onnx.defs.onnx_opset_version()


def network(opset: int) -> list[tuple[Any, ...]]:
    """Operators whose form changed between operator sets."""
    if opset < 9:
        up: tuple[Any, ...] = ("Upsample", ["p"], ["q"], {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "nearest"})
    elif opset < 11:
        up = ("Upsample" if opset == 9 else "Resize", ["p", "s"], ["q"], {"mode": "nearest"})
    else:
        attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        up = ("Resize", ["p", "roi" if opset < 13 else "", "s"], ["q"], attrs)
    clip = ("Clip", ["d"], ["e"], {"min": 0.0, "max": 6.0}) if opset < 11 else ("Clip", ["d", "lo", "hi"], ["e"], {})
    mean = ("ReduceMean", ["e"], ["f"], {"axes": [2, 3]}) if opset < 18 else ("ReduceMean", ["e", "ax"], ["f"], {})
    squeeze = ("Squeeze", ["h"], ["i"], {"axes": [2, 3]}) if opset < 13 else ("Squeeze", ["h", "ax"], ["i"], {})
    one = {"kernel_shape": [1, 1]}
    return [
        ("Conv", ["x", "w"], ["t"], {"kernel_shape": [3, 3], "pads": [1] * 4}),
        ("BatchNormalization", ["t", "g", "b", "m", "v"], ["u"], {}),
        ("Relu", ["u"], ["a"], {}),
        ("MaxPool", ["a"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        up,
        ("Concat", ["q", "a"], ["c"], {"axis": 1}),
        ("Conv", ["c", "w2"], ["d"], one),
        clip,
        mean,
        ("Conv", ["f", "w3"], ["h"], one),
        squeeze,
        ("Softmax", ["i"], ["y"], {"axis": 1}),
    ]


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_operator_set(build, same, opset: int) -> None:
    random = np.random.default_rng(0)
    sizes = {"w": (6, 4, 3, 3), "g": (6,), "b": (6,), "m": (6,), "w2": (4, 12, 1, 1), "w3": (3, 4, 1, 1)}
    values = {k: random.normal(size=s) for k, s in sizes.items()}
    values |= {"v": np.abs(random.normal(size=6)) + 0.3, "s": np.array([1, 1, 2, 2]), "roi": np.array([])}
    values |= {"lo": np.array(0), "hi": np.array(6)}
    constants = {k: v.astype(np.float32) for k, v in values.items()} | {"ax": np.array([2, 3])}
    nodes = network(opset)
    read = {t for node in nodes for t in node[1]}
    model = build(nodes, constants={k: v for k, v in constants.items() if k in read}, opset=opset)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:
        pytest.skip(
            f"ONNX Runtime {onnxruntime.__version__} does not run operator set {opset}: {str(error).splitlines()[0]}"
        )
    graph = same(model, place=True)
    assert [n.op for n in graph.nodes] == [
        *("Conv", "MaxPool", "Resize", "Concat", "Conv", "AveragePool", "Conv", "Squeeze", "Softmax")
    ]
    assert [p.device for p in graph.partitions] == ["NPU", "CPU"]
