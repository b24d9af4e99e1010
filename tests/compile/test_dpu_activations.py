"""The DPU flavour's activations: the DPU's where it computes, the network's own where the CPU does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.dpu import adapt, limits
from npuforge.compile.dpu.flow import DpuBuild, loss_line
from npuforge.compile.ir.graph import Activation, Graph
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition


@pytest.mark.parametrize(
    ("target", "slopes"), [("DPUCZDX8G", [26 / 256, 0.2, 26 / 256]), ("DPUCAHX8H", [0.2, 0.2, 26 / 256])]
)
def test_nodes_left_to_the_cpu_keep_their_activation(target: str, slopes: list[float]) -> None:
    """A depthwise convolution (its activation separated: an operator that DPUCAHX8H lacks), one in 3 groups (no DPU takes it), a plain one."""
    random, make = np.random.default_rng(4), helper.make_node
    weights = {"d": (6, 1, 3, 3), "g": (6, 2, 3, 3), "c": (4, 6, 1, 1)}
    nodes, last = [], "x"
    for name, shape in weights.items():
        group = {"d": 6, "g": 3, "c": 1}[name]
        nodes.append(make("Conv", [last, f"{name}_w"], [f"{name}_y"], name, kernel_shape=list(shape[2:]), group=group))
        nodes.append(make("LeakyRelu", [f"{name}_y"], [f"{name}_l"], f"{name}l", alpha=0.2))
        last = f"{name}_l"
    nodes.append(make("Conv", [last, "s_w"], ["s_y"], "s", kernel_shape=[1, 1], group=2))
    nodes += [make("Sigmoid", ["s_y"], ["sig"], "sig"), make("Mul", ["s_y", "sig"], ["y"], "silu")]
    weights |= {"s": (4, 2, 1, 1)}
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 9, 9])]
    values.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    constants = [
        numpy_helper.from_array(random.normal(size=s).astype(np.float32), f"{n}_w") for n, s in weights.items()
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "net", values[:1], values[1:], constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    before, limit = fuse(fold(import_onnx(model).graph)), limits.load(f"dpu:{target}")
    graph, changed = adapt.adapted(before, True)
    placed, kept = adapt.own_on_cpu(partition(adapt.separated(graph, limit), limit=limit.reason), before, changed)
    sloped = [n for n in placed.nodes if n.activation.kind == "LeakyRelu"]
    assert [n.activation.alpha for n in sloped] == [pytest.approx(slope) for slope in slopes]
    assert [n.device for n in sloped] == ["NPU" if slope == 26 / 256 else "CPU" for slope in slopes]
    assert placed.nodes[-1].activation.kind == "Silu" and placed.nodes[-1].device == "CPU"
    assert sorted(kept) == sorted(n.name.removesuffix("/leaky-relu") for n in sloped if n.device == "NPU")
    image = random.normal(0, 1, (1, 6, 9, 9)).astype(np.float32)
    for node in (
        n for n in placed.nodes if n.activation.kind != "none" and n.device == "CPU"
    ):  # by hand: slope or SiLU of what enters
        source = replace(placed, nodes=[replace(n, activation=Activation()) if n is node else n for n in placed.nodes])
        linear = GraphExecutor(source, [node.outputs[0]]).run({"x": image})[node.outputs[0]].astype(np.float64)
        found = GraphExecutor(placed, [node.outputs[0]]).run({"x": image})[node.outputs[0]]
        wanted = (
            np.where(linear < 0, 0.2 * linear, linear)
            if node.activation.kind == "LeakyRelu"
            else linear / (1 + np.exp(-linear))
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def with_tail(*tail: onnx.NodeProto, output: str, dtype: int) -> tuple[Graph, Graph]:
    """A convolution with LeakyReLU 0.2 whose values `c` [1, 4, 5, 5] `tail` makes an output of; the network as it is and with the DPU's slope."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["linear"], "conv", kernel_shape=[1, 1]),
        helper.make_node("LeakyRelu", ["linear"], ["c"], "leaky", alpha=0.2),
        *tail,
    ]
    random = np.random.default_rng(6)
    constants = {"w": random.normal(size=(4, 3, 1, 1)).astype(np.float32), "rows": np.array([1, 25, 4])}
    constants |= {"most": np.array([9]), "overlap": np.float32([0.5])}
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 5, 5])]
    values.append(helper.make_tensor_value_info(output, dtype, None))
    used = {t for n in nodes for t in n.input}
    initialisers = [numpy_helper.from_array(v, k) for k, v in constants.items() if k in used]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], initialisers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    before = fuse(fold(import_onnx(model).graph))
    return before, adapt.adapted(before, False)[0]


@pytest.mark.parametrize("kind", ["rows by the data", "integers"])
def test_the_loss_is_measured_in_front_of_such_outputs(kind: str) -> None:
    """NonMaxSuppression's rows, and the positions of an ArgMax: what they are made from tells."""
    make = helper.make_node
    if kind == "integers":
        before, after = with_tail(make("ArgMax", ["c"], ["y"], "best", axis=1), output="y", dtype=TensorProto.INT64)
        wanted = {"c"}
    else:
        tail = [
            make("Reshape", ["c", "rows"], ["boxes"], "boxes"),
            make("ReduceMax", ["boxes"], ["most_likely"], "max", axes=[2], keepdims=1),
            make("Transpose", ["most_likely"], ["scores"], "scores", perm=[0, 2, 1]),
            make("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["y"], "nms"),
        ]
        before, after = with_tail(*tail, output="y", dtype=TensorProto.INT64)
        wanted = {"boxes", "scores"}
    image = np.random.default_rng(1).normal(size=(1, 3, 5, 5)).astype(np.float32)
    found = adapt.measured_loss(before, after, [{"x": image}])
    assert found.keys() == wanted
    weight = before.constants[before.nodes[0].inputs[1]].reshape(4, 3).astype(np.float64)
    linear = np.einsum("oc,chw->ohw", weight, image[0].astype(np.float64))
    first, second = (np.where(linear < 0, linear * slope, linear) for slope in (0.2, 26 / 256))
    expected = np.linalg.norm(first - second) / np.linalg.norm(first)
    assert found["c" if kind == "integers" else "boxes"] == pytest.approx(expected, rel=1e-5)


def test_no_figure_is_not_an_empty_one() -> None:
    build = DpuBuild("T", changed=["a"], loss={}, loss_images=8)
    assert "not measured" in loss_line(build, ["y"]) and not loss_line(build, ["y"]).endswith(": ")
    assert (
        loss_line(replace(build, loss={"y": 0.5}), ["y"]) == "relative change of the float outputs on 8 images: y 0.5"
    )
    assert "the nearest tensors in front) on 8 images: boxes 0.5" in loss_line(
        replace(build, loss={"boxes": 0.5}), ["y"]
    )


@pytest.mark.parametrize(("alpha", "kind"), [(0.0, "Relu"), (1.0, "none"), (1.5, ""), (-0.1, ""), (-1.0, "")])
def test_slopes_that_are_no_leaky_relu(alpha: float, kind: str) -> None:
    """0 and 1 lose nothing on the DPU; below and above, the CPU computes the network's own behind the DPU's convolution."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w"], ["linear"], "conv", kernel_shape=[1, 1]),
        make("Abs", ["linear"], ["bent"], "abs")
        if alpha == -1
        else make("LeakyRelu", ["linear"], ["bent"], "leaky", alpha=alpha),
        make("Conv", ["bent", "w"], ["y"], "last", kernel_shape=[1, 1]),
    ]
    random = np.random.default_rng(7)
    weight = random.normal(size=(4, 4, 1, 1)).astype(np.float32)
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 5, 5])]
    values.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    before, target = fuse(fold(import_onnx(model).graph)), limits.load("dpu:DPUCZDX8G")
    after, changed = adapt.adapted(before, False)
    placed = partition(adapt.separated(after, target), limit=target.reason)
    assert not changed
    first = placed.node("conv")
    assert (first.device, first.activation.kind) == ("NPU", kind or "none")
    if not kind:
        alone = placed.node("conv/leaky-relu")
        assert (alone.device, alone.activation.alpha) == ("CPU", pytest.approx(alpha))
        assert alone.reason.startswith(f"{target.name}: leaky-relu with LeakyRelu of slope {alpha:.4g}, allowed")
    image = random.normal(size=(1, 4, 5, 5)).astype(np.float32)
    linear = np.einsum("oc,chw->ohw", weight.reshape(4, 4).astype(np.float64), image[0].astype(np.float64))
    bent = np.where(linear < 0, alpha * linear, linear)
    expected = np.einsum("oc,chw->ohw", weight.reshape(4, 4).astype(np.float64), bent)
    np.testing.assert_allclose(GraphExecutor(placed, ["y"]).run({"x": image})["y"][0], expected, rtol=1e-4, atol=1e-5)
