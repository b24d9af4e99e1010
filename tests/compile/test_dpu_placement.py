"""Which nodes a DPU gets: what its target has, wherever it stands, whatever our own NPU's times are; decodes of heads stay in float."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from fix_form_interpreter import execute
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.dpu import adapt, limits
from npuforge.compile.dpu.fix_form import build_fix_form
from npuforge.compile.dpu.flow import ends_in_head
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.float_tail import DISTRIBUTION_REASON, FLOAT_REASON, TAIL_REASON
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor
from npuforge.quant.quantize import quantize

TARGET = limits.load("dpu:DPUCZDX8G")
SHAPE = (1, 3, 16, 12)


class Network:
    """Nodes on an input x [1, 3, 16, 12]; each call adds one, named as its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.random = np.random.default_rng(4)

    def __call__(self, op: str, name: str, *inputs: str, **attrs: object) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attrs))
        return name

    def conv(self, name: str, x: str, channels: tuple[int, int], kernel: int = 3, group: int = 1) -> str:
        outputs, inputs = channels
        shape = (outputs, inputs // group, kernel, kernel)
        fan = inputs // group * kernel * kernel
        self.constants[f"{name}_w"] = (self.random.normal(size=shape) / np.sqrt(fan)).astype(np.float32)
        pads = [kernel // 2] * 4
        return self("Conv", name, x, f"{name}_w", kernel_shape=[kernel] * 2, pads=pads, group=group)

    def placed(self, outputs: Sequence[str], tail: bool = True) -> Graph:
        values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
        constants = [numpy_helper.from_array(v, k) for k, v in self.constants.items()]
        graph = helper.make_graph(self.nodes, "net", values, results, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        imported = import_onnx(model).graph
        imported.fixed_tail = tail
        return partition(adapt.separated(fuse(fold(imported)), TARGET), limit=TARGET.reason)


def reasons(graph: Graph) -> dict[str, str]:
    return {n.outputs[0]: n.reason for n in graph.nodes if n.device == "CPU"}


def tail() -> tuple[Network, list[str]]:
    """Every operator that may stand behind the last convolution, and what may not."""
    net = Network()
    net.constants["scales"] = np.array([1, 1, 2, 2], np.float32)
    first, second = net.conv("first", "x", (8, 3)), net.conv("second", "x", (8, 3))
    total = net("Relu", "total", net("Sum", "sum", first, second, first))
    product = net("LeakyRelu", "product", net("Mul", "mul", total, second), alpha=26 / 256)
    average = net(
        "AveragePool", "average", product, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=1
    )
    largest = net("MaxPool", "largest", average, kernel_shape=[2, 2], strides=[2, 2])
    up = net(
        "Resize",
        "up",
        largest,
        "",
        "scales",
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    joined = net("Concat", "joined", up, average, axis=1)
    scores = net("Sigmoid", "scores", joined)
    again = net("MaxPool", "again", scores, kernel_shape=[3, 3], pads=[1] * 4)
    return net, [joined, largest, again]


def test_what_stands_behind_the_last_convolution() -> None:
    net, outputs = tail()
    graph = net.placed(outputs)
    assert reasons(graph) == {"scores": TAIL_REASON, "again": TAIL_REASON}
    assert len(graph.partitions) == 2


def test_the_tail_has_our_integers() -> None:
    net, outputs = tail()
    graph = net.placed([*outputs[:2], "scores"])
    random = np.random.default_rng(0)
    images = [{"x": random.normal(0, 1, SHAPE).astype(np.float32)} for _ in range(2)]
    statistics = calibrate(graph, images, lambda wanted: GraphExecutor(graph, wanted, threads=1).run)
    qgraph = quantize(graph, statistics, "pow2")
    found, expected = execute(build_fix_form(qgraph), images[0]["x"]), IntegerExecutor(qgraph).run(images[0])
    compared = [n.outputs[0] for n in qgraph.graph.nodes if n.device == "NPU"]
    assert len(compared) >= 10
    for name in compared:
        fix = qgraph.quant[name].fix_point
        assert fix is not None
        np.testing.assert_array_equal(found[f"{name}_fix"] * 2.0**fix, expected[name], err_msg=name)


def test_the_tail_of_a_head_stays_in_float() -> None:
    net, outputs = tail()
    on_cpu = reasons(net.placed(outputs, tail=False))
    assert {"joined", "largest", "average", "scores"} <= on_cpu.keys()
    graph = net.placed(outputs)
    assert not ends_in_head(graph, None) and not ends_in_head(graph, Preprocess())
    assert ends_in_head(graph, Preprocess(head=HeadSpec("yolox")))


def test_our_npus_times_decide_nothing() -> None:
    """Small convolutions between nodes for the CPU, before and behind the largest region."""
    net = Network()
    x = net.conv("small", net.conv("groups", net.conv("entry", "x", (8, 3)), (8, 8), group=2), (8, 8), 1)
    large = net.conv("large", net.conv("more", x, (64, 8), group=2), (64, 64), 7)
    x = net.conv("last", net.conv("less", large, (8, 64), group=2), (4, 8), 1)
    on_cpu = reasons(net.placed([x]))
    assert on_cpu.keys() == {"groups", "more", "less"}
    assert all("convolution in 2 groups" in reason for reason in on_cpu.values())


def test_a_pool_of_what_the_cpu_computes_stays_there() -> None:
    net = Network()
    groups = net.conv("groups", net.conv("entry", "x", (8, 3)), (8, 8), group=2)
    on_cpu = reasons(net.placed([net("MaxPool", "pool", groups, kernel_shape=[2, 2])]))
    assert on_cpu["pool"] == FLOAT_REASON


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_mean_of_a_distribution(outputs: int) -> None:
    """A box's distance as a convolution of 1 output over its bins stays in float; any other convolution behind a Softmax is the DPU's."""
    net = Network()
    bins = net("Softmax", "bins", net.conv("entry", "x", (8, 3)), axis=1)
    on_cpu = reasons(net.placed([net.conv("mean", bins, (outputs, 8), 1)]))
    assert on_cpu.get("mean") == (DISTRIBUTION_REASON if outputs == 1 else None)
