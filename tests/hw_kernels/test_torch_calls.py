"""Calls of operators from PyTorch that name no operator, or too many outputs; and that what the refusals say to call gives torch's values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
import torch
from torch.nn import functional

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.hw_kernels.bindings.torch_ops import run

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("name", "instead"), [("GlobalAveragePool", "AveragePool"), ("GlobalMaxPool", "MaxPool")])
def test_global_pooling_says_what_to_call(name: str, instead: str) -> None:
    with pytest.raises(
        UnsupportedError, match=rf"operator {name} is .* call {instead} with kernel_shape=\[height, width\]"
    ):
        run(name, torch.zeros(1, 2, 3, 5))


def test_what_they_say_to_call_has_the_values_of_torch() -> None:
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(run("AveragePool", x, kernel_shape=[5, 7]), x.mean((2, 3), keepdim=True))
    torch.testing.assert_close(run("MaxPool", x, kernel_shape=[5, 7]), x.amax((2, 3), keepdim=True))
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    found = run("Resize", x, sizes=[10, 14], scales=[2.0, 2.0], **modes)
    torch.testing.assert_close(found, functional.interpolate(x, scale_factor=2, mode="nearest"))


@pytest.mark.parametrize(
    ("name", "outputs", "has", "attributes"),
    [
        ("npuforge::Silu", 2, 1, {}),
        ("npuforge::LeakyReluMask", 3, 2, {"alpha": 0.1}),
        ("Softmax", 2, 1, {"axis": 1}),
    ],
)
def test_outputs_that_the_operator_has_not(name: str, outputs: int, has: int, attributes: dict[str, Any]) -> None:
    said = rf"operator {name}: outputs={outputs}, but it has {has}; give a number up to that"
    with pytest.raises(UnsupportedError, match=said):
        run(name, torch.zeros(1, 2, 4, 4), outputs=outputs, **attributes)


def test_no_outputs_at_all() -> None:
    with pytest.raises(UnsupportedError, match="operator MaxPool: outputs=0; expected 1 or more"):
        run("MaxPool", torch.zeros(1, 2, 4, 4), outputs=0, kernel_shape=[2, 2])


class _Two(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return run("Softmax", x, outputs=2, axis=1)


def test_nor_while_a_network_is_exported() -> None:
    with pytest.raises(Exception, match="outputs=2, but it has 1"):
        torch.onnx.export(_Two().eval(), (torch.zeros(1, 2, 4, 4),), dynamo=True)
