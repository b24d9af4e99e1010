"""The kit's own operators with values that cannot be: one line that names the node, whatever the operator's code would have made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.steps.import_onnx import import_onnx

W, BOXES = np.ones((4, 3, 3, 3), np.float32), (4, 5)


@pytest.mark.parametrize(
    ("op", "attrs", "constants", "shape", "words"),
    [
        ("RotatedConv", {"rotations": 0}, {"c": W}, (1, 3, 8, 8), "needs one or more rotations"),
        ("RotatedConv", {"rotations": -2}, {"c": W}, (1, 3, 8, 8), "needs one or more rotations"),
        ("RotatedConv", {}, {"c": W[:, :, :, :2]}, (1, 3, 8, 8), "a square kernel"),
        ("RotatedNms", {"iou_threshold": float("nan")}, {"c": np.ones((1, 4), np.float32)}, BOXES, "attribute iou_threshold is NaN"),
        ("RotatedNms", {}, {"c": np.ones(4, np.float32)}, BOXES, "needs boxes"),
        ("RotatedRoiAlign", {"output_height": 0}, {"c": np.zeros((2, 6), np.float32)}, (1, 3, 8, 8), "output_height 0"),
        ("RotatedRoiAlign", {"sampling_ratio": -1}, {"c": np.zeros((2, 6), np.float32)}, (1, 3, 8, 8), "sampling_ratio -1"),
        ("AngleDecode", {}, {}, (1, 3, 8, 8), "needs sines and cosines"),
    ],
)  # fmt: skip
def test_impossible_values_are_about_the_node(
    build: Any, op: str, attrs: dict[str, Any], constants: dict[str, np.ndarray], shape: tuple[int, ...], words: str
) -> None:
    nodes = [(op, ["x", *constants], ["y"], attrs, "own", "npuforge")]
    with pytest.raises(ModelError, match=f"own.*{words}"):
        import_onnx(build(nodes, shape=shape, constants=constants, domains=["npuforge"]))
