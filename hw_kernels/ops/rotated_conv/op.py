"""RotatedConv: a convolution whose kernel is applied at n angles; at inference an ordinary convolution with n times the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels.convolution_program import bias_of_zeros
from npuforge.hw_kernels.gradients import Bilinear
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, Shape, find, register
from npuforge.hw_kernels.ops.rotated_conv.program import direction, rotated_conv


@cache
def rotation_matrices(kernel: int, count: int) -> np.ndarray:
    """[count, kernel**2, kernel**2]: the taps of the kernel rotated by 2 pi j / count, counter-clockwise with y upwards, from its own taps.

    Bilinear interpolation about the centre; what lies outside the kernel is 0. Quarter turns of a kernel are exact permutations.
    """
    centre = (kernel - 1) / 2
    result = np.zeros((count, kernel * kernel, kernel * kernel))
    for j in range(count):
        cosine, sine = direction(j, count)
        for row, column in np.ndindex(kernel, kernel):
            x, y = column - centre, centre - row
            # The rotated kernel at p is the kernel at p turned back.
            source_x, source_y = cosine * x + sine * y + centre, centre - (cosine * y - sine * x)
            left, top = int(np.floor(source_x)), int(np.floor(source_y))
            for dy, dx in np.ndindex(2, 2):
                share = (1 - abs(source_y - (top + dy))) * (1 - abs(source_x - (left + dx)))
                if 0 <= top + dy < kernel and 0 <= left + dx < kernel:
                    result[j, row * kernel + column, (top + dy) * kernel + left + dx] += share
    return result


@register
class RotatedConv(Bilinear, HostOp):
    """y[j*O + o] = b[o] + convolution with w[o] rotated by 2*pi*j/rotations, j < rotations; group as in Conv"""

    dsl = rotated_conv
    names = ("npuforge::RotatedConv",)
    optional_inputs = (2,)
    attributes = ("kernel_shape", "strides", "pads", "dilations", "group", "rotations")
    onnx = ("npuforge::RotatedConv",)
    lowers_to = ("Conv", "Gather")
    cases = (
        Case(
            [(1, 3, 6, 5)],
            {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "rotations": 4},
            [(2, 3, 3, 3), (2,)],
            why="quarter turns",
        ),
        Case(
            [(2, 4, 6, 6)],
            {"kernel_shape": [3, 3], "strides": [2, 2], "rotations": 8, "group": 2},
            [(2, 2, 3, 3), (2,)],
        ),
        Case([(1, 2, 6, 6)], {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2], "rotations": 3}, [(2, 2, 5, 5), (2,)]),
        Case([(1, 1, 1, 1)], {"kernel_shape": [1, 1], "rotations": 1}, [(1, 1, 1, 1), (1,)], why="one of everything"),
        Case([(1, 2, 4, 4)], {"kernel_shape": [3, 3], "rotations": 2}, [(2, 2, 3, 3)], why="no bias"),
    )

    def absent_input(self, position: int, shapes: Sequence[Shape | None]) -> np.ndarray | None:
        return bias_of_zeros(shapes)

    def _conv(self, node: Node) -> Node:
        attrs = {k: v for k, v in node.attrs.items() if k != "rotations"}
        return Node(node.name, "Conv", list(node.inputs), list(node.outputs), attrs, sources=list(node.sources))

    def _count(self, node: Node) -> int:
        return int(node.attrs.get("rotations", 4))

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        count = self._count(node)
        if count < 1 or len(shapes[1]) != 4 or shapes[1][2] != shapes[1][3]:
            raise ModelError(
                f"node {node.name}: RotatedConv needs one or more rotations and a square kernel, found {count} and {shapes[1]}"
            )
        n, outputs, h, w = _plain().infer(self._conv(node), shapes)[0]
        return [(n, outputs * count, h, w)]

    def rotated(self, weight: np.ndarray, count: int, group: int) -> np.ndarray:
        """[O, I, k, k] as [group, count, O/group, I, k, k] flattened to a grouped convolution's weights [count*O, I, k, k]."""
        outputs, inputs, kernel, _ = weight.shape
        turned = np.einsum(
            "jts,gois->gjoit", rotation_matrices(kernel, count), weight.reshape(group, outputs // group, inputs, -1)
        )
        return turned.reshape(count * outputs, inputs, kernel, kernel)

    def _order(self, outputs: int, count: int, group: int) -> np.ndarray:
        """For each output channel j*O + o the channel of the grouped convolution that has it."""
        per_group = outputs // group
        places = np.arange(count * outputs).reshape(group, count, per_group)
        return places.transpose(1, 0, 2).reshape(-1)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        count, group = self._count(node), int(node.attrs.get("group", 1))
        outputs = inputs[1].shape[0]
        y = _plain().reference(self._conv(node), [inputs[0], self.rotated(inputs[1].astype(np.float64), count, group)])[
            0
        ]
        y = y[:, self._order(outputs, count, group)]
        return [y if len(inputs) < 3 else y + np.tile(inputs[2], count)[:, None, None]]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Of the map, the weights (through the rotations, transposed) and the bias."""
        count, group = self._count(node), int(node.attrs.get("group", 1))
        weight = np.asarray(inputs[1], np.float64)
        outputs, channels, kernel, _ = weight.shape
        dy = np.empty_like(output_gradients[0])
        dy[:, self._order(outputs, count, group)] = output_gradients[0]
        dx, dw, *_ = _plain().gradient(self._conv(node), [inputs[0], self.rotated(weight, count, group)], [dy])
        turned = np.asarray(dw).reshape(group, count, outputs // group, channels, kernel * kernel)
        back = np.einsum("jts,gjoit->gois", rotation_matrices(kernel, count), turned).reshape(weight.shape)
        bias = output_gradients[0].sum((0, 2, 3)).reshape(count, outputs).sum(0)
        return [dx, back, bias][: len(inputs)]

    def lower(self, node: Node, graph: Graph) -> list[Node] | None:
        """An ordinary convolution; constant weights are turned here, others by operators in front of it."""
        weight, bias = (
            graph.constants.get(node.inputs[1]),
            graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None,
        )
        known = graph.tensors.get(node.inputs[1])
        if weight is None and known is None:
            raise UnsupportedError(
                f"node {node.name}: RotatedConv has weights that are computed at run time and of unknown shape; export with constant weights"
            )
        shape = weight.shape if weight is not None else tuple(int(d) for d in known.shape)  # type: ignore[union-attr]
        count, group = self._count(node), int(node.attrs.get("group", 1))
        conv, order = self._conv(node), self._order(shape[0], count, group)
        nodes: list[Node] = []
        conv.inputs[1] = f"{node.name}/rotated_weight"
        if weight is None:
            nodes += self._turn(node, conv.inputs[1], shape, graph)
        else:
            graph.constants[conv.inputs[1]] = self.rotated(weight.astype(np.float64), count, group).astype(np.float32)
        if len(node.inputs) > 2:
            sources = np.empty(count * shape[0], np.int64)  # of the grouped convolution's biases
            sources[order] = np.tile(np.arange(shape[0]), count)
            conv.inputs[2] = f"{node.name}/rotated_bias"
            if bias is None:
                graph.constants[f"{node.name}/bias_order"] = sources
                inputs = [node.inputs[2], f"{node.name}/bias_order"]
                nodes.append(
                    Node(
                        f"{node.name}/bias", "Gather", inputs, [conv.inputs[2]], {"axis": 0}, sources=list(node.sources)
                    )
                )
            else:
                graph.constants[conv.inputs[2]] = bias[sources]
        if group == 1:
            return [*nodes, conv]
        conv.name, conv.outputs = f"{node.name}/conv", [f"{node.outputs[0]}/by_group"]
        graph.constants[f"{node.name}/order"] = order.astype(np.int64)
        inputs = [conv.outputs[0], f"{node.name}/order"]
        last = Node(node.name, "Gather", inputs, list(node.outputs), {"axis": 1}, sources=list(node.sources))
        return [*nodes, conv, last]

    def _turn(self, node: Node, turned: str, shape: tuple[int, ...], graph: Graph) -> list[Node]:
        """`rotated` in operators: the taps of every filter times the rotation matrices side by side, then the channels in the order of the groups."""
        count, group, (outputs, channels, kernel, _) = self._count(node), int(node.attrs.get("group", 1)), shape
        matrices = rotation_matrices(kernel, count).reshape(-1, kernel * kernel).T  # [taps, count * taps]
        graph.constants[f"{turned}/matrices"] = matrices.astype(np.float32)
        shapes = {
            "taps": [-1, kernel * kernel],
            "angles": [group, outputs // group, channels, count, kernel * kernel],
            "filters": [count * outputs, channels, kernel, kernel],
        }
        for name, value in shapes.items():
            graph.constants[f"{turned}/{name}_shape"] = np.array(value, np.int64)
        steps: list[tuple[str, str, list[str], dict[str, Any]]] = [
            ("taps", "Reshape", [node.inputs[1], f"{turned}/taps_shape"], {}),
            ("turned", "MatMul", [f"{turned}/taps", f"{turned}/matrices"], {}),
            ("angles", "Reshape", [f"{turned}/turned", f"{turned}/angles_shape"], {}),
            ("order", "Transpose", [f"{turned}/angles"], {"perm": [0, 3, 1, 2, 4]}),
            ("filters", "Reshape", [f"{turned}/order", f"{turned}/filters_shape"], {}),
        ]
        return [
            Node(
                f"{turned}/{name}",
                op,
                inputs,
                [turned if name == "filters" else f"{turned}/{name}"],
                attrs,
                sources=list(node.sources),
            )
            for name, op, inputs, attrs in steps
        ]


def _plain() -> Any:
    return find("Conv")
