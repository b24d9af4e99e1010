"""Array programs of the NPU DSL on drawn shapes, attributes and values, against the operators' float64 references: ties, thresholds that nothing or
everything passes, regions across the border, empty rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.operator import registry

Draw = tuple[dict[str, Any], list[np.ndarray], int]  # attributes, inputs, number of outputs


def _rotated_nms(random: np.random.Generator) -> Draw:
    count, classes = int(random.integers(1, 30)), int(random.integers(1, 4))
    parts = (
        random.uniform(0, 10, (count, 2)),
        random.uniform(0.1, 8, (count, 2)),
        random.uniform(-4, 4, (count, 1)),
    )
    scores = random.integers(0, 6, (classes, count)) / 5.0 if random.random() < 0.5 else random.random((classes, count))
    choices: dict[str, list[Any]] = {
        "iou_threshold": [0.0, 0.1, 0.3, 0.5, 0.9, 1.0],
        "score_threshold": [-1.0, 0.0, 0.2, 0.6, 0.99],
        "max_output_boxes_per_class": [0, 1, 2, 5],
    }
    attributes = {n: v[random.integers(len(v))] for n, v in choices.items() if random.random() < 0.7}
    return attributes, [np.concatenate(parts, 1), scores], 1


def _yolo_decode(random: np.random.Generator) -> Draw:
    anchors, classes, scales, images = (int(v) for v in random.integers(1, (4, 5, 4, 3)))
    shapes = [(images, anchors * (5 + classes), *random.integers(1, 6, 2)) for _ in range(scales)]
    attributes = {
        "anchors": [float(v) for v in random.uniform(1, 90, 2 * anchors * scales)],
        "strides": [8 * 2**i for i in range(scales)],
        "num_classes": classes,
    }
    if images == 1 and random.random() < 0.6:
        attributes["score_threshold"] = float(random.random())
    return attributes, [random.normal(0, 3, shape) for shape in shapes], 3


def _rotated_roi_align(random: np.random.Generator) -> Draw:
    images, channels, height, width, regions = (int(v) for v in random.integers(1, (3, 4, 9, 9, 6)))
    parts = (
        random.integers(0, images, (regions, 1)),
        random.uniform(-3, 14, (regions, 2)),
        random.uniform(0, 12, (regions, 2)),
        random.uniform(-4, 4, (regions, 1)),
    )
    if random.random() < 0.3:  # regions far larger than the map
        parts[2][:] *= 10.0 ** random.uniform(0, 3)
    attributes = {n: int(random.integers(1, 4)) for n in ("output_height", "output_width")}
    attributes["sampling_ratio"] = int(random.integers(0, 4))
    scale = {"spatial_scale": float(random.choice([1.0, 0.5, 0.25]))}
    return attributes | scale, [random.normal(size=(images, channels, height, width)), np.concatenate(parts, 1)], 1


def _csr_matmul(random: np.random.Generator) -> Draw:
    rows, inner, columns, count = (int(v) for v in random.integers(1, (9, 9, 9, 20)))
    pointers = np.concatenate([[0], np.sort(random.integers(0, count + 1, rows - 1)), [count]])
    x, values = random.normal(size=(inner, columns)), random.normal(size=count)
    return {}, [x, values, random.integers(0, inner, count), pointers], 1


def _window(random: np.random.Generator, size: list[int]) -> dict[str, Any]:
    """Attributes of a convolution of a kernel of this size that fits any map from 5 x 5 on."""
    choices: dict[str, list[Any]] = {
        "kernel_shape": [size],
        "strides": [[1, 1], [2, 2], [1, 3]],
        "pads": [[0, 0, 0, 0], [1, 1, 1, 1], [0, 2, 1, 0]],
        "dilations": [[1, 1], [2, 2]],
    }
    return {n: v[random.integers(len(v))] for n, v in choices.items() if random.random() < 0.7}


def _conv_bn_leaky_relu(random: np.random.Generator) -> Draw:
    group, inputs, outputs, images = (int(v) for v in random.integers(1, (4, 4, 4, 3)))
    kernel = [int(v) for v in random.integers(1, 4, 2)]
    shape = (images, group * inputs, *random.integers(5, 9, 2))
    weight, channels = random.normal(size=(group * outputs, inputs, *kernel)), group * outputs
    attributes = _window(random, kernel) | {"group": group}
    attributes |= {n: float(random.uniform(0.001, 1.5)) for n in ("epsilon", "alpha") if random.random() < 0.5}
    of_channels = [random.normal(size=channels) for _ in range(4)]
    return attributes, [random.normal(size=shape), weight, *of_channels, random.uniform(0, 2, channels)], 1


def _rotated_conv(random: np.random.Generator) -> Draw:
    group, inputs, outputs, images = (int(v) for v in random.integers(1, (3, 4, 4, 3)))
    kernel = int(random.integers(1, 4))
    shape = (images, group * inputs, *random.integers(5, 9, 2))
    attributes = _window(random, [kernel, kernel]) | {"group": group, "rotations": int(random.integers(1, 9))}
    weight, bias = random.normal(size=(group * outputs, inputs, kernel, kernel)), random.normal(size=group * outputs)
    return attributes, [random.normal(size=shape), weight, bias], 1


def _shape(random: np.random.Generator) -> tuple[list[int], int]:
    shape = [int(v) for v in random.integers(1, 5, random.integers(1, 5))]
    return shape, int(random.integers(-len(shape), len(shape)))


def _angle_encode(random: np.random.Generator) -> Draw:
    shape, axis = _shape(random)
    return {"axis": axis}, [random.uniform(-50, 50, shape)], 1


def _angle_decode(random: np.random.Generator) -> Draw:
    shape, axis = _shape(random)
    shape[axis] *= 2
    return {"axis": axis}, [np.where(random.random(shape) < 0.3, 0.0, random.normal(size=shape))], 1


def _leaky_relu_mask(random: np.random.Generator) -> Draw:
    return {"alpha": float(random.normal())}, [random.normal(size=_shape(random)[0])], int(random.integers(1, 3))


DRAWS = {
    "RotatedNms": _rotated_nms,
    "YoloDecode": _yolo_decode,
    "RotatedRoiAlign": _rotated_roi_align,
    "CsrMatMul": _csr_matmul,
    "ConvBnLeakyRelu": _conv_bn_leaky_relu,
    "RotatedConv": _rotated_conv,
    "AngleEncode": _angle_encode,
    "AngleDecode": _angle_decode,
    "LeakyReluMask": _leaky_relu_mask,
}


@pytest.mark.parametrize("kind", DRAWS)
def test_drawn_calls(kind: str) -> None:
    name, random = f"npuforge::{kind}", np.random.default_rng(5)
    own = registry()[name]
    for _ in range(40):
        attributes, inputs, outputs = DRAWS[kind](random)
        node = Node("n", name, [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)], attributes)
        expected = own.reference(node, inputs)
        found = own.dsl.trace([x.shape for x in inputs], attributes).meaning(inputs)
        for f, e in zip(found, expected, strict=False):
            assert f.shape == np.shape(e), attributes
            np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-9, err_msg=str(attributes))


def test_rows_of_samples_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """RotatedRoiAlign without a sampling_ratio, where an array holds two rows of samples of the regions and not all."""
    name, random = "npuforge::RotatedRoiAlign", np.random.default_rng(9)
    attributes = {"output_height": 3, "output_width": 2}
    x, regions = random.normal(size=(2, 3, 8, 6)), random.uniform(1, 30, (4, 6))
    regions[:, 0] = [0, 1, 1, 0]
    node = Node("n", name, ["x", "regions"], ["y"], attributes)
    program = registry()[name].dsl
    whole = len(program.trace([x.shape, regions.shape], attributes).operations)
    monkeypatch.setattr("npuforge.hw_kernels.ops.rotated_roi_align.program.WHOLE", 4 * 14 * 3 * 2 + 1)
    trace = program.trace([x.shape, regions.shape], attributes)
    (loop,) = (o.loop for o in trace.operations if o.loop is not None)
    assert loop.count > 4 and len(trace.operations) <= whole + 2
    np.testing.assert_allclose(
        trace.meaning([x, regions])[0], registry()[name].reference(node, [x, regions])[0], rtol=1e-9, atol=1e-9
    )
