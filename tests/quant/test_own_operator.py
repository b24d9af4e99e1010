"""An operator of a user's package: registered, quantised by its own `quantise`, run by its own `integer`; refused by name without one."""

from collections.abc import Iterator

import numpy as np
import pytest
from networks import Builder, calibrated, images, sqnr

from npuforge.compile.ir.errors import QuantisationError, UnsupportedError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import QGraph, TensorQuant
from npuforge.hw_kernels import operator
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor
from npuforge.quant.quantize import quantize


class Square(operator.Op):
    """y = x*x"""

    names = ("com.test::Square",)

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [shapes[0]]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [inputs[0] ** 2]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        zero, factor, zero_out = qgraph.params[node.name]  # type: ignore[misc]
        return np.clip(np.floor((inputs[0].astype(int) - zero) ** 2 * factor + 0.5) + zero_out, -128, 127).astype(
            np.int8
        )

    def quantise(
        self, node: Node, inputs: list[TensorQuant], wanted: TensorQuant, qgraph: QGraph
    ) -> tuple[object, TensorQuant]:
        return (inputs[0].zero_point, inputs[0].scale ** 2 / wanted.scale, wanted.zero_point), wanted


class SquareWithoutQuantise(Square):
    names = ("com.test::Square",)
    quantise = operator.Op.quantise


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[None]:
    operator.registry()
    operator._REGISTERED["com.test::Square"] = request.param()
    yield
    del operator._REGISTERED["com.test::Square"]


def _graph() -> Graph:
    b = Builder((1, 3, 6, 6))
    b.conv("first", "input", 5, 1)
    b.add("com.test::Square", "square", ["first"])
    b.conv("last", "square", 4, 1)
    return b.finish("last")


@pytest.mark.parametrize("registered", [Square], indirect=True)
@pytest.mark.parametrize(("mode", "least"), [("fine", 30.0), ("pow2", 18.0)])
def test_own_operator_in_a_network(registered: None, mode: str, least: float) -> None:
    graph = _graph()
    feeds = images(graph, 3)
    qgraph = quantize(graph, calibrated(graph, feeds), mode)
    expected = np.concatenate([ReferenceExecutor(graph).run(f)["last"] for f in feeds])
    found = np.concatenate([IntegerExecutor(qgraph).run_outputs(f)["last"] for f in feeds])
    assert sqnr(expected, found) > least


@pytest.mark.parametrize("registered", [SquareWithoutQuantise], indirect=True)
@pytest.mark.parametrize("mode", ["fine", "pow2"])
def test_operator_without_quantise_is_refused_by_name(registered: None, mode: str) -> None:
    graph = _graph()
    with pytest.raises(QuantisationError, match=r"node square: the quantiser does not know operator com\.test::Square"):
        quantize(graph, calibrated(graph, images(graph, 1)), mode)


def test_two_classes_under_one_name_are_refused() -> None:
    operator.registry()

    class Impostor(operator.Op):
        names = ("Conv",)

    with pytest.raises(
        UnsupportedError, match=r"operator Conv: registered by npuforge\.hw_kernels\.ops\.conv\.op and again by"
    ):
        operator.register(Impostor)
