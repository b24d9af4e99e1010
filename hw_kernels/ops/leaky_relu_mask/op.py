"""LeakyReluMask: LeakyReLU with its mask as a second output, so that the backward pass needs neither the input nor the gradient's sign."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import OutputStage
from npuforge.hw_kernels.arithmetic import pwl_stage
from npuforge.hw_kernels.dsl.array import array_kernel, vcmpsel, vmuls
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, HlsKernel, KernelCase, SecondGradients, Shape, register
from npuforge.hw_kernels.ops.leaky_relu_mask.on_npu_data import KERNEL_BF16, KERNEL_INT8


def integer_mask(x: np.ndarray, z_in: np.ndarray, stage: OutputStage) -> tuple[np.ndarray, np.ndarray]:
    """The normative bits of one block of 16 lanes: int8 outputs, and a word with bit `lane` set where x > z_in."""
    centred = x.astype(np.int64) - z_in
    return pwl_stage(centred, stage), np.array([sum(1 << i for i in range(16) if centred[i] > 0)], np.uint16)


@array_kernel
def leaky_relu_mask(x: Any, *, alpha: float = 0.01) -> Any:
    """The same for the NPU DSL."""
    return vcmpsel(x, 0.0, "lt", vmuls(x, alpha), x), vcmpsel(x, 0.0, "gt", 1.0, 0.0)


def _kernel_case(random: np.random.Generator) -> KernelCase:
    def draw(low: int, high: int, kind: type) -> np.ndarray:
        return random.integers(low, high, 16).astype(kind)

    x, z_in, z_out = (draw(-128, 128, np.int8) for _ in range(3))
    limits = np.sort(random.integers(-128, 128, (2, 16)), axis=0).astype(np.int8)
    m_pos, m_neg, shift = draw(-32768, 32768, np.int16), draw(-32768, 32768, np.int16), draw(0, 24, np.int8)
    stage = OutputStage("pwl", shift, z_out, m_pos=m_pos, m_neg=m_neg, low=limits[0], high=limits[1])
    arguments = [
        x,
        z_in,
        m_pos,
        m_neg,
        shift,
        z_out,
        limits[0],
        limits[1],
        np.zeros(16, np.int8),
        np.zeros(1, np.uint16),
    ]
    return arguments, list(integer_mask(x, z_in, stage))


@register
class LeakyReluMask(HostOp):
    """y = x where mask, alpha*x elsewhere; mask = 1 where x > 0, else 0"""

    names = ("npuforge::LeakyReluMask",)
    host_types = ("float32",)
    attributes = ("alpha",)
    onnx = ("npuforge::LeakyReluMask",)
    placed_as = "LeakyRelu on the NPU where nothing reads its mask"
    kernel = HlsKernel(
        "leaky_relu_mask",
        (
            *("const int8_t*", "const int8_t*", "const int16_t*", "const int16_t*", "const int8_t*", "const int8_t*"),
            *("const int8_t*", "const int8_t*", "int8_t*", "uint16_t*"),
        ),
        _kernel_case,
    )
    dsl = leaky_relu_mask
    kernel_int8 = KERNEL_INT8
    kernel_bf16 = KERNEL_BF16
    cases = (
        Case([(2, 3, 4, 5)], {"alpha": 0.1}, outputs=2),
        Case([(1, 17, 1, 1)], {"alpha": -1.5}, outputs=2, why="a negative slope"),
        Case(
            [(1, 1, 1, 3)],
            values=lambda r: [np.array([[[[-2.0, 1e-3, 5.0]]]])],
            outputs=2,
            why="the default slope 0.01",
        ),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0]] * len(node.outputs)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        mask = (inputs[0] > 0).astype(np.float64)
        alpha = float(node.attrs.get("alpha", 0.01))
        return [np.where(inputs[0] < 0, alpha * inputs[0], inputs[0]), mask][: len(node.outputs)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """dy where the mask is set, alpha*dy elsewhere (for NaN too, as PyTorch); the mask itself is constant between jumps."""
        return [output_gradients[0] * self._slope(node, inputs)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """0 in x."""
        assert directions[0] is not None
        rest = [np.zeros(np.shape(inputs[0]))] * (len(output_gradients) - 1)
        return [np.zeros(np.shape(inputs[0]))], [directions[0] * self._slope(node, inputs), *rest]

    def _slope(self, node: Node, inputs: list[Any]) -> np.ndarray:
        return np.where(np.asarray(inputs[0]) > 0, 1.0, float(node.attrs.get("alpha", 0.01)))

    def lower(self, node: Node, graph: Graph) -> list[Node] | None:
        mask = node.outputs[1] if len(node.outputs) > 1 else ""
        if mask and (mask in graph.outputs or graph.consumers(mask)):
            return None
        alpha = float(node.attrs.get("alpha", 0.01))
        return [
            Node(
                node.name,
                "LeakyRelu",
                list(node.inputs),
                node.outputs[:1],
                {"alpha": alpha},
                sources=list(node.sources),
            )
        ]
