"""Executors: CPU nodes on dequantised values, inputs in every form, and the float64 reference against ONNX Runtime on a whole network."""

import numpy as np
import pytest
from networks import Builder, calibrated, images, small_network

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.quant.executor import Arrays, IntegerExecutor, dequantise, image_bytes, quantise
from npuforge.quant.quantize import quantize
from npuforge.quant.regions import Region, subgraph


def test_quantise_rounds_half_up_and_saturates() -> None:
    quant = TensorQuant(np.array([0.5, 2.0]), np.array([-10, 5], np.int32))
    x = np.array([[0.25, -0.25, 100.0, -100.0], [1.0, -1.0, 2.9, 3.0]]).reshape(1, 2, 1, 4)
    # channel 0: x/s = 0.5 -> 1, -0.5 -> 0, then z; channel 1: 0.5 -> 1, -0.5 -> 0, 1.45 -> 1, 1.5 -> 2
    q = quantise(x, quant)
    assert q.shape == (1, 1, 4, 2)
    assert q[0, 0, :, 0].tolist() == [-9, -10, 127, -128] and q[0, 0, :, 1].tolist() == [6, 5, 6, 7]
    back = dequantise(q, quant)
    assert back.dtype == np.float32 and back[0, 0, 0].tolist() == [0.5, 0.0, 68.5, -59.0]


def test_image_bytes() -> None:
    assert image_bytes(np.array([0, 127, 128, 255], np.uint8)).tolist() == [-128, -1, 0, 127]


def _network_with_decode() -> Graph:
    b = Builder((1, 3, 4, 4))
    b.conv("first", "input", 4, 3, Activation("Relu"))
    b.add("Affine", "decode", ["first"], Activation("Sigmoid"), scale=[1.0] * 4, bias=[0.5] * 4)
    graph = b.finish("decode", "first")
    graph.nodes[1].device = "CPU"
    return graph


def test_cpu_nodes_run_in_float_on_dequantised_values() -> None:
    graph = _network_with_decode()
    feeds = images(graph, 2)
    qgraph = quantize(graph, calibrated(graph, feeds))
    called: list[list[str]] = []

    def run_cpu(nodes: list[Node], values: Arrays) -> Arrays:
        called.append([n.name for n in nodes])
        return {"decode": 1 / (1 + np.exp(-(values["first"].astype(np.float64) + 0.5)))}

    integers = IntegerExecutor(qgraph).run(feeds[0])
    assert set(integers) == {"input", "first"} and all(v.dtype == np.int8 for v in integers.values())
    real = (integers["first"] - qgraph.quant["first"].zero_point) * qgraph.quant["first"].scale
    expected = 1 / (1 + np.exp(-(real.transpose(0, 3, 1, 2) + 0.5)))
    for executor in (IntegerExecutor(qgraph, run_cpu), IntegerExecutor(qgraph)):
        outputs = executor.run_outputs(feeds[0])
        np.testing.assert_allclose(outputs["decode"], expected, rtol=1e-5)
        np.testing.assert_allclose(outputs["first"], real.transpose(0, 3, 1, 2), rtol=1e-6)
    assert called == [["decode"]]


def test_npu_after_cpu() -> None:
    """A CPU node between two NPU regions: its result is quantised with its own calibrated scale."""
    b = Builder((1, 3, 4, 4))
    b.conv("first", "input", 4, 1)
    b.add("Affine", "middle", ["first"], Activation("Tanh"), scale=[1.0] * 4, bias=[0.0] * 4)
    b.conv("last", "middle", 2, 1)
    graph = b.finish("last")
    graph.nodes[1].device = "CPU"
    feeds = images(graph, 2)
    qgraph = quantize(graph, calibrated(graph, feeds))
    integers = IntegerExecutor(qgraph).run(feeds[0])
    first = (integers["first"] - qgraph.quant["first"].zero_point) * qgraph.quant["first"].scale
    middle = np.tanh(first.astype(np.float32).astype(np.float64)) / qgraph.quant["middle"].scale
    np.testing.assert_array_equal(
        integers["middle"], np.clip(np.floor(middle + 0.5) + qgraph.quant["middle"].zero_point, -128, 127)
    )
    assert qgraph.quant["middle"].scale.max() <= 2.0 / 255 * 1.001


def test_raw_pixels_need_an_image_input() -> None:
    graph = small_network()
    executor = IntegerExecutor(quantize(graph, calibrated(graph, images(graph, 1))))
    with pytest.raises(UnsupportedError, match="input input: raw pixels given"):
        executor.run(np.zeros((1, 16, 12, 3), np.uint8))


def test_subgraph_of_cpu_nodes() -> None:
    graph = _network_with_decode()
    part = subgraph(graph, graph.nodes[1:], {"first", "input"})
    assert (part.inputs, part.outputs) == (["first"], ["decode"])


def test_region_before_placement() -> None:
    """Without placement, what follows the last convolution stays in float."""
    graph = _network_with_decode()
    for node in graph.nodes:
        node.device = ""
    region = Region.of(graph)
    assert [n.name for n in region.nodes] == ["first"] and region.entries == ["input"] and region.leaves() == ["first"]
