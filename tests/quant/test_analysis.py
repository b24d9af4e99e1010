"""Per-layer metrics against hand figures; a damaged layer is the one that `alone` points at."""

import numpy as np
import pytest
from networks import calibrated, images, small_network

from npuforge.compile.ir.quantization import ConvParams
from npuforge.quant.analysis import SQNR_EXACT, Meter, analyse, measured_tensors, worst_first
from npuforge.quant.executor import ReferenceExecutor
from npuforge.quant.quantize import quantize


def test_meter_by_hand() -> None:
    meter = Meter()
    meter.add(np.array([3.0, 4.0]), np.array([3.0, 3.0]), np.array([127, 0], np.int8))
    meter.add(np.array([0.0]), np.array([2.0]), np.array([-128], np.int8))
    metrics = meter.metrics()
    assert metrics.sqnr_db == pytest.approx(10 * np.log10(25 / 5))
    assert metrics.cosine == pytest.approx(21 / np.sqrt(25 * 22))
    assert (metrics.max_abs_error, metrics.mean_abs_error, metrics.saturation) == (2.0, 1.0, pytest.approx(2 / 3))


def test_meter_without_error_and_without_signal() -> None:
    meter = Meter()
    meter.add(np.ones(3), np.ones(3))
    assert meter.metrics().sqnr_db == SQNR_EXACT and meter.metrics().cosine == pytest.approx(1.0)
    meter = Meter()
    meter.add(np.zeros(3), np.ones(3))
    assert meter.metrics().sqnr_db == -SQNR_EXACT and meter.metrics().cosine == 0.0


def test_a_damaged_layer_is_found() -> None:
    graph = small_network()
    feeds = images(graph, 3)
    qgraph = quantize(graph, calibrated(graph, feeds))
    executor = ReferenceExecutor(graph, measured_tensors(qgraph))
    references = [(f, executor.run(f)) for f in feeds]
    before = {loss.node: loss for loss in analyse(qgraph, references)}
    assert [*before] == [n.name for n in graph.nodes]
    assert all(loss.alone.sqnr_db > 25.0 and loss.accumulated.cosine > 0.99 for loss in before.values())
    params = qgraph.params["depthwise"]
    assert isinstance(params, ConvParams)
    params.weight[:] = -params.weight
    after = {loss.node: loss for loss in analyse(qgraph, references)}
    assert worst_first(list(after.values()))[0].node == "depthwise"
    assert after["pointwise"].alone == before["pointwise"].alone  # alone: the layers before do not matter
    assert after["pointwise"].accumulated.sqnr_db < before["pointwise"].accumulated.sqnr_db - 10.0
    assert after["stem"].accumulated == before["stem"].accumulated
