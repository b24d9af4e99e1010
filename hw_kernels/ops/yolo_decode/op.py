"""YoloDecode (`npuforge::YoloDecode`, version 1): raw YOLOv3 head maps in; boxes, scores and class indices out, in one call.

Inputs: one map per scale, [I, A·(5 + num_classes), H, W] of the same I images, channels ordered (anchor, value), values (tx, ty, tw, th, objectness, classes).
Attributes: `anchors` (floats: scale by scale, width and height in input pixels), `strides` (ints, one per scale), `num_classes` (int),
`score_threshold` (float in [0, 1], 0 where absent).
Outputs, N = Σ A·H·W in the order scale, row, column, anchor:
boxes [I, N, 4] = (x1, y1, x2, y2) in input pixels; scores [I, N]; classes [I, N], float32 like the others so that all three may be
joined (indices are small integers, so exact); of equal class probabilities the first counts.
A `score_threshold` above 0 leaves the M rows with score > score_threshold, in the same order: [1, M, 4], [1, M], [1, M], where M, 0 included, depends on
the data: of one image, since the images of a batch would have different M. Strictly above, as NonMaxSuppression (ONNX's and the kit's) and the heads of the runtime compare, so that the same threshold there and here
selects the same boxes; a score of NaN is not kept. The threshold is a float32, as an ONNX file stores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels.host import without_nan
from npuforge.hw_kernels.operator import Case, Gradients, Op, SecondGradients, Shape, register
from npuforge.hw_kernels.ops.yolo_decode.attributes import Attributes, score_threshold
from npuforge.hw_kernels.ops.yolo_decode.fixed import KERNEL
from npuforge.hw_kernels.ops.yolo_decode.npu_data import KERNEL_BF16, KERNEL_INT8
from npuforge.hw_kernels.ops.yolo_decode.program import yolo_decode


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x) without overflow at either end."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small))


def _rows(head: np.ndarray, anchors: int) -> np.ndarray:
    """[1, A·K, H, W] as [H, W, A, K]."""
    _, channels, height, width = head.shape
    return head[0].reshape(anchors, channels // anchors, height, width).transpose(2, 3, 0, 1)


def _columns(rows: np.ndarray) -> np.ndarray:
    """The inverse of `_rows`."""
    height, width, anchors, values = rows.shape
    return rows.transpose(2, 3, 0, 1).reshape(1, anchors * values, height, width)


def runs_on_the_host(node: Node, graph: Graph) -> bool:
    """YoloDecode runs on the CPU partition: exp and the boxes it gives need float range, behind the last convolution"""
    return False


@register
class YoloDecode(Op):
    """bx = (σ(tx) + column)·stride, by = (σ(ty) + row)·stride, bw = e^tw·anchor width, bh = e^th·anchor height;
    box = (bx − bw/2, by − bh/2, bx + bw/2, by + bh/2); score = σ(objectness)·max σ(classes); class = argmax;
    with a score_threshold only the rows whose score is above it"""

    dsl = yolo_decode
    kernel, kernel_int8, kernel_bf16 = KERNEL, KERNEL_INT8, KERNEL_BF16
    names = ("npuforge::YoloDecode",)
    host_types = ("float32",)
    attributes = ("anchors", "strides", "num_classes", "score_threshold")
    onnx = ("npuforge::YoloDecode",)
    constraints = (runs_on_the_host,)
    index_outputs = (2,)
    cases = (
        Case(
            [(1, 33, 16, 16), (1, 33, 8, 8)],
            {"anchors": [44, 23, 25, 44, 35, 35, 46, 46, 60, 61, 84, 83], "strides": [16, 32], "num_classes": 6},
            why="the bundled network",
            outputs=3,
        ),
        Case(
            [(1, 6, 3, 5)],
            {"anchors": [10, 13], "strides": [8], "num_classes": 1},
            why="one class, one anchor",
            outputs=3,
        ),
        Case(
            [(1, 14, 1, 2), (1, 14, 2, 1), (1, 14, 1, 1)],
            {"anchors": [4, 5, 9, 7, 11, 19, 20, 16, 40.5, 33, 61, 90], "strides": [8, 16, 32], "num_classes": 2},
            why="three scales of odd shape",
            outputs=3,
        ),
        Case(
            [(3, 14, 2, 1), (3, 14, 1, 2)],
            {"anchors": [4, 5, 9, 7, 11, 19, 20, 16], "strides": [8, 16], "num_classes": 2},
            why="a batch",
            outputs=3,
        ),
        Case(
            [(1, 14, 5, 4), (1, 14, 2, 3)],
            {"anchors": [4, 5, 9, 7, 11, 19, 20, 16], "strides": [8, 16], "num_classes": 2, "score_threshold": 0.4},
            why="only rows above a threshold",
            outputs=3,
        ),
        Case(
            [(1, 6, 2, 2)],
            {"anchors": [10, 13], "strides": [8], "num_classes": 1, "score_threshold": 1.0},
            why="no row above the threshold",
            outputs=3,
        ),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        count = self._row_count(node, shapes)
        count = -1 if score_threshold(node) > 0 else count
        images = shapes[0][0]
        return [(images, count, 4), (images, count), (images, count)]

    def largest(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        count = self._row_count(node, shapes)
        images = shapes[0][0]
        return [(images, count, 4), (images, count), (images, count)]

    def _row_count(self, node: Node, shapes: list[Shape]) -> int:
        """All rows of an image, before the threshold; ModelError names the input that does not fit."""
        attributes = Attributes.of(node, len(shapes))
        anchors = attributes.anchors.shape[1]
        channels = anchors * (5 + attributes.num_classes)
        for name, shape in zip(node.inputs, shapes, strict=True):
            images = shapes[0][0] if shapes[0] else 1
            if len(shape) != 4 or shape[0] != images or images == 0 or shape[1] != channels:
                raise ModelError(
                    f"node {node.name}: input {name} of YoloDecode has shape {list(shape)}; expected [{max(images, 1)}, {channels}, H, W]"
                    f" for {anchors} anchors and {attributes.num_classes} classes"
                )
            if images != 1 and attributes.score_threshold > 0:
                raise ModelError(
                    f"node {node.name}: YoloDecode has {images} images and score_threshold {attributes.score_threshold:g}; the images would keep"
                    " different numbers of rows: leave score_threshold out and select behind it, or decode each image by a node of its own"
                )
        return sum(anchors * shape[2] * shape[3] for shape in shapes)

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        self._row_count(node, [np.shape(x) for x in inputs])  # refuses what a framework hands over and doesn't fit
        attributes = Attributes.of(node, len(inputs))
        parts = [self._decoded(attributes, images) for images in _each_image(inputs)]
        return [np.concatenate(v) for v in zip(*parts, strict=True)]

    def _decoded(self, attributes: Attributes, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """Boxes, scores and classes of one image."""
        boxes, scores, classes = [], [], []
        for head, anchors, stride in zip(inputs, attributes.anchors, attributes.strides, strict=True):
            t = _rows(head.astype(np.float64), len(anchors))
            centre = (_sigmoid(t[..., :2]) + _cells(t)) * stride
            half = _half(t, anchors)
            boxes.append(np.concatenate([centre - half, centre + half], -1).reshape(-1, 4))
            scores.append(_score(t).reshape(-1))
            classes.append(_best(t).reshape(-1).astype(np.float64))
        kept = _above(np.concatenate(scores), attributes)
        return [np.concatenate(v)[None, kept] for v in (boxes, scores, classes)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Gradients of the inputs from those of boxes and scores (`output_gradients[0]`, `[1]`); class indices have none.

        The score's gradient goes to the objectness and to the class that was the maximum. Rows that a threshold took away receive nothing.
        """
        attributes = Attributes.of(node, len(inputs))
        pairs = zip(_each_image(inputs), _each_image(output_gradients), strict=True)
        parts = [self._image_gradient(attributes, x, dy) for x, dy in pairs]
        return [np.concatenate(v) for v in zip(*parts, strict=True)]

    def _image_gradient(
        self, attributes: Attributes, inputs: list[Any], output_gradients: list[np.ndarray]
    ) -> list[np.ndarray]:
        output_gradients = _spread(output_gradients, inputs, attributes)
        results: list[np.ndarray] = []
        offset = 0
        for head, anchors, stride in zip(inputs, attributes.anchors, attributes.strides, strict=True):
            t = _rows(head.astype(np.float64), len(anchors))
            shape, count = t.shape[:3], int(np.prod(t.shape[:3]))
            box = output_gradients[0][0, offset : offset + count].reshape(*shape, 2, 2)  # (corner, axis)
            score = output_gradients[1][0, offset : offset + count].reshape(shape)
            offset += count
            result = np.zeros_like(t)
            position = _sigmoid(t[..., :2])
            result[..., :2] = box.sum(-2) * position * (1 - position) * stride
            result[..., 2:4] = _times(box[..., 1, :] - box[..., 0, :], _half(t, anchors))
            objectness, best = _sigmoid(t[..., 4]), _best(t)
            probability = _sigmoid(np.take_along_axis(t[..., 5:], best, -1))[..., 0]
            result[..., 4] = score * probability * objectness * (1 - objectness)
            named = (score * objectness * probability * (1 - probability))[..., None]
            np.put_along_axis(result[..., 5:], best, named, -1)
            results.append(_columns(result))
        return results

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Of boxes and scores; the class that is the maximum stays the same one, and so do the rows above the threshold."""
        attributes = Attributes.of(node, len(inputs))
        triples = zip(_each_image(inputs), _each_image(output_gradients), _each_image(directions), strict=True)
        parts = [self._image_second(attributes, x, dy, v) for x, dy, v in triples]
        of_inputs, of_outputs = (
            [np.concatenate(v) for v in zip(*side, strict=True)] for side in zip(*parts, strict=True)
        )
        return list(of_inputs), list(of_outputs)

    def _image_second(
        self, attributes: Attributes, inputs: list[Any], output_gradients: list[np.ndarray], directions: list[Any]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        output_gradients = _spread(output_gradients, inputs, attributes)
        results: list[np.ndarray] = []
        of_outputs = [np.zeros(np.shape(g)) for g in output_gradients]
        offset = 0
        for head, direction, anchors, stride in zip(
            inputs, directions, attributes.anchors, attributes.strides, strict=True
        ):
            t, v = (_rows(np.asarray(x, np.float64), len(anchors)) for x in (head, direction))
            shape, count = t.shape[:3], int(np.prod(t.shape[:3]))
            part = slice(offset, offset + count)
            offset += count
            box = output_gradients[0][0, part].reshape(*shape, 2, 2)  # (corner, axis)
            score = output_gradients[1][0, part].reshape(shape)
            result, of_box = np.zeros_like(t), np.zeros_like(box)
            slope, bend = _slopes(t[..., :2])
            result[..., :2] = v[..., :2] * box.sum(-2) * bend * stride
            of_box += (v[..., :2] * slope * stride)[..., None, :]
            half = _half(t, anchors)
            moved = _times(v[..., 2:4], half)
            result[..., 2:4] = _times(v[..., 2:4] * (box[..., 1, :] - box[..., 0, :]), half)
            of_box[..., 1, :] += moved
            of_box[..., 0, :] -= moved
            best = _best(t)
            named, v_named = (np.take_along_axis(x[..., 5:], best, -1)[..., 0] for x in (t, v))
            o, p = _sigmoid(t[..., 4]), _sigmoid(named)
            (o1, o2), (p1, p2) = _slopes(t[..., 4]), _slopes(named)
            v_o = v[..., 4]
            result[..., 4] = score * (v_o * p * o2 + v_named * p1 * o1)
            np.put_along_axis(result[..., 5:], best, (score * (v_o * p1 * o1 + v_named * o * p2))[..., None], -1)
            of_outputs[0][0, part] = of_box.reshape(-1, 4)
            of_outputs[1][0, part] = (v_o * p * o1 + v_named * o * p1).reshape(-1)
            results.append(_columns(result))
        kept = _above(_scores(inputs, attributes), attributes)
        return results, [g[:, kept] for g in of_outputs]


def _each_image(arrays: Sequence[Any]) -> list[list[np.ndarray]]:
    """The arrays [1, ...] of every image of [I, ...]."""
    return [[np.asarray(x)[n : n + 1] for x in arrays] for n in range(len(arrays[0]))]


def _best(t: np.ndarray) -> np.ndarray:
    """The class of rows [..., K]: [..., 1]. NaN is passed over unless it comes first, as in ArgMax."""
    return np.asarray(without_nan(t[..., 5:], -1).argmax(-1)[..., None])


def _score(t: np.ndarray) -> np.ndarray:
    """Scores of rows [..., K]."""
    return np.asarray(_sigmoid(t[..., 4]) * _sigmoid(np.take_along_axis(t[..., 5:], _best(t), -1))[..., 0])


def _scores(inputs: list[Any], attributes: Attributes) -> np.ndarray:
    """[N]: of all rows."""
    heads = (_rows(np.asarray(x, np.float64), attributes.anchors.shape[1]) for x in inputs)
    return np.concatenate([_score(t).reshape(-1) for t in heads])


def _above(scores: np.ndarray, attributes: Attributes) -> np.ndarray:
    """Which rows stay."""
    everything = attributes.score_threshold == 0
    return np.full(scores.shape, True) if everything else scores > attributes.score_threshold


def _spread(of_kept: list[np.ndarray], inputs: list[Any], attributes: Attributes) -> list[np.ndarray]:
    """Output gradients [1, M, ...] of the rows that stay as [1, N, ...] of all, 0 for the others."""
    kept = _above(_scores(inputs, attributes), attributes)
    results = []
    for gradient in of_kept:
        every = np.zeros((1, len(kept), *np.shape(gradient)[2:]))
        every[:, kept] = gradient
        results.append(every)
    return results


def _half(t: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Half the width and height of each box; infinite where e^t leaves float64."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(t[..., 2:4]) * anchors / 2)


def _times(gradient: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Their product; 0 where no gradient arrives, of an infinite box too."""
    return np.asarray(gradient * np.where(gradient == 0, 0.0, half))


def _slopes(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivative of the sigmoid."""
    s = _sigmoid(t)
    return s * (1 - s), s * (1 - s) * (1 - 2 * s)


def _cells(t: np.ndarray) -> np.ndarray:
    """(column, row) of each cell: [H, W, 1, 2]."""
    row, column = np.indices(t.shape[:2])
    return np.stack([column, row], -1)[:, :, None].astype(np.float64)
