"""ONNX operators that the import makes another one of: what is said where there is no import."""

from __future__ import annotations

import pytest

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator


def test_every_onnx_name_is_an_operator_or_says_what_to_call() -> None:
    registered = operator.registry()
    missing = {name for op in registered.values() for name in op.onnx if name not in registered}
    assert missing == {name for op in registered.values() for name, _ in op.called_with}
    assert {"GlobalAveragePool", "GlobalMaxPool"} <= missing


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("GlobalAveragePool", r"call AveragePool with kernel_shape=\[height, width\] of the map"),
        ("GlobalMaxPool", r"call MaxPool with kernel_shape=\[height, width\] of the map"),
        ("Upsample", "call Resize with sizes="),
        (
            "npuforge::Nothing",
            "operator npuforge::Nothing is not known; register it under the entry point group npuforge.ops",
        ),
    ],
)
def test_what_is_said(name: str, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        raise UnsupportedError(f"operator {name} {operator.not_known(name)}")


def test_a_node_says_it_too() -> None:
    with pytest.raises(
        UnsupportedError, match=r"^node n: operator GlobalMaxPool is what ONNX files have.* call MaxPool with"
    ):
        operator.get(Node("n", "GlobalMaxPool", ["x"], ["y"], {}))
