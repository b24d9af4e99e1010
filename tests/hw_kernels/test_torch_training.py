"""Fifty training steps with the kit's PyTorch operators give the loss curve of the same network in torch's own. Run where PyTorch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
import torch

from npuforge.hw_kernels.bindings import torch_modules as modules
from npuforge.hw_kernels.bindings.torch_ops import run

pytestmark = pytest.mark.torch


# ---- the operators that torch has
class Torchs(torch.nn.Module):
    """The same network in torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.LeakyReLU(0.1),
            nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.SiLU(),
            nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1), nn.GELU(approximate="tanh"), nn.Conv2d(6, 2, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Ours(torch.nn.Module):
    """The network in the kit's operators."""

    def __init__(self) -> None:
        super().__init__()
        m = modules
        self.layers = torch.nn.Sequential(
            m.Conv2d(3, 8, 3, stride=2, padding=1), m.BatchNorm2d(8), m.LeakyReLU(0.1),
            m.Conv2d(8, 8, 3, padding=1, groups=2), m.BatchNorm2d(8), m.SiLU(),
            m.ConvTranspose2d(8, 6, 4, stride=2, padding=1), m.CustomGELU(), m.Conv2d(6, 2, 1), m.Operator("Sigmoid"),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def curve(network: Any, steps: int) -> list[float]:
    generator = torch.Generator().manual_seed(7)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
    losses = []
    for _ in range(steps):
        x = torch.randn(4, 3, 12, 12, generator=generator, dtype=torch.float64)
        target = (x[:, :2] > 0).to(torch.float64)
        loss = torch.nn.functional.binary_cross_entropy(network(x), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def test_fifty_steps_give_torchs_loss_curve() -> None:
    torch.manual_seed(3)
    theirs, ours = Torchs().double(), Ours().double()
    ours.load_state_dict(theirs.state_dict())
    expected, found = curve(theirs, 50), curve(ours, 50)
    assert expected[-1] < 0.8 * expected[0], "the network learns"
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-7, atol=1e-9)
    theirs.eval()
    ours.eval()
    x = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-7, atol=1e-9)


def test_batch_norm_state_is_torchs() -> None:
    ours, theirs = modules.BatchNorm2d(2), torch.nn.BatchNorm2d(2)
    for _ in range(3):
        x = torch.randn(2, 2, 3, 3)
        ours(x), theirs(x)
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    assert int(ours.num_batches_tracked) == 3
    before_the_count = {k: v for k, v in ours.state_dict().items() if k != "num_batches_tracked"}
    modules.BatchNorm2d(2).load_state_dict(before_the_count)


def test_batch_norm_refuses_one_value_per_channel_in_training() -> None:
    ours = modules.BatchNorm2d(2)
    with pytest.raises(ValueError, match=r"more than 1 value per channel, the input has shape \[1, 2, 1, 1\]"):
        ours(torch.zeros(1, 2, 1, 1))
    assert int(ours.num_batches_tracked) == 0
    assert ours.eval()(torch.zeros(1, 2, 1, 1)).shape == (1, 2, 1, 1)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("HardSwish", torch.nn.functional.hardswish),
        ("npuforge::ClipSigmoid", lambda x: torch.sigmoid(x).clamp(0.1, 0.9)),
        ("Elu", torch.nn.functional.elu),
        ("HardSigmoid", lambda x: torch.clip(0.2 * x + 0.5, 0.0, 1.0)),
        ("Relu", torch.relu),
        ("LeakyRelu", torch.nn.functional.leaky_relu),
        ("npuforge::Silu", torch.nn.functional.silu),
        ("Gelu", torch.nn.functional.gelu),
        ("Mish", torch.nn.functional.mish),
        ("Celu", torch.nn.functional.celu),
        ("Swish", torch.nn.functional.silu),
        ("ThresholdedRelu", lambda x: torch.nn.functional.threshold(x, 1.0, 0.0)),
        ("Shrink", lambda x: torch.nn.functional.hardshrink(x, 0.5)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_gradients_at_special_values_are_torchs_and_nan_stays_nan(name: str, theirs: Any, dtype: Any) -> None:
    x = torch.tensor([torch.inf, -torch.inf, 6e4, -6e4, torch.nan], dtype=dtype, requires_grad=True)
    (found,), (expected,) = (torch.autograd.grad(f(x).sum(), x) for f in (lambda x: run(name, x), theirs))
    torch.testing.assert_close(found[:4], expected[:4], equal_nan=True)
    assert found[4].isnan(), "torch's own disagree here: 1 of HardSwish and Relu, NaN of a clip"


def test_gradients_of_nan_are_torchs_where_the_operator_is_not_curved() -> None:
    """The slope of LeakyRelu with its mask and of PRelu, 0 of a clamp; NaN for PRelu's slopes."""
    x = torch.tensor([[torch.nan, 1.0, 0.0, -2.0]], dtype=torch.float64, requires_grad=True)
    slope = torch.full((1, 1), 0.25, dtype=torch.float64, requires_grad=True)
    functional = torch.nn.functional
    pairs = [
        (lambda: run("npuforge::LeakyReluMask", x, outputs=2, alpha=0.1)[0], lambda: functional.leaky_relu(x, 0.1)),
        (lambda: run("Clip", x, min=-1.5, max=0.5), lambda: x.clamp(-1.5, 0.5)),
    ]
    for ours, theirs in pairs:
        (found,), (expected,) = (torch.autograd.grad(f().sum(), x) for f in (ours, theirs))
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    found, expected = (
        torch.autograd.grad(y.sum(), (x, slope))
        for y in (run("PRelu", x, slope), functional.prelu(x, slope.reshape(1)))
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


# ---- the operators that torch has not, written out in torch
ANCHORS, STRIDE, CLASSES = (10.0, 13.0, 20.0, 9.0), 8, 2


def torchs_decode(t: Any) -> tuple[Any, Any]:
    """Boxes [1, N, 4] and scores [1, N] by DESIGN's formulas: bx = (σ(tx) + column)·stride, bw = e^tw·anchor width."""
    height, width = t.shape[2:]
    t = t[0].reshape(2, 5 + CLASSES, height, width).permute(2, 3, 0, 1)
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    cells = torch.stack([columns, rows], -1)[:, :, None]
    centre = (torch.sigmoid(t[..., :2]) + cells) * STRIDE
    half = torch.exp(t[..., 2:4]) * torch.tensor(ANCHORS, dtype=t.dtype).reshape(2, 2) / 2
    scores = torch.sigmoid(t[..., 4]) * torch.sigmoid(t[..., 5:]).amax(-1)
    return torch.cat([centre - half, centre + half], -1).reshape(1, -1, 4), scores.reshape(1, -1)


def our_decode(t: Any) -> tuple[Any, Any]:
    attributes: dict[str, Any] = {"anchors": list(ANCHORS), "strides": [STRIDE], "num_classes": CLASSES}
    boxes, scores, _ = run("npuforge::YoloDecode", t, outputs=3, **attributes)
    return boxes, scores


WINDOW = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4}
SHAPES = ((6, 3, 3, 3), (6,), (2, 6, 3, 3), (2,), (8, 1, 1), (8, 8, 3, 3), *[(8,)] * 3, (14, 8, 1, 1), (14,))


def our_steps(
    x: Any, w1: Any, b1: Any, w2: Any, b2: Any, t: Any, w3: Any, b3: Any, s: Any, h: Any, w4: Any, b4: Any
) -> Any:
    x, _ = run("npuforge::LeakyReluMask", run("Conv", x, w1, b1, **WINDOW), outputs=2, alpha=0.2)
    x = run("npuforge::RotatedConv", x, w2, b2, rotations=4, **WINDOW)
    x = run("npuforge::ModSigmoid", x, t)
    zeros, ones = torch.zeros_like(b3), torch.ones_like(b3)
    x = run("npuforge::ConvBnLeakyRelu", x, w3, b3, s, h, zeros, ones, alpha=0.1, **WINDOW)
    x = run("npuforge::Silu", x) + run("npuforge::ClipSigmoid", x)
    return our_decode(run("Conv", x, w4, b4, kernel_shape=[1, 1]))


def torch_steps(
    x: Any, w1: Any, b1: Any, w2: Any, b2: Any, t: Any, w3: Any, b3: Any, s: Any, h: Any, w4: Any, b4: Any
) -> Any:
    nn = torch.nn.functional
    x = nn.leaky_relu(nn.conv2d(x, w1, b1, padding=1), 0.2)
    turned = torch.cat([torch.rot90(w2, j, (2, 3)) for j in range(4)])
    x = nn.conv2d(x, turned, b2.repeat(4), padding=1)
    x = torch.sigmoid(x - t)
    x = nn.batch_norm(nn.conv2d(x, w3, b3, padding=1), torch.zeros_like(b3), torch.ones_like(b3), s, h)
    x = nn.leaky_relu(x, 0.1)
    x = nn.silu(x) + torch.sigmoid(x).clip(0.1, 0.9)
    return torchs_decode(nn.conv2d(x, w4, b4))


def curve_of(steps: Callable[..., Any]) -> tuple[list[float], list[Any]]:
    generator = torch.Generator().manual_seed(11)
    parameters = [0.4 * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    parameters = [p.requires_grad_() for p in parameters]
    optimiser = torch.optim.Adam(parameters, lr=0.02)
    wanted = torch.rand(1, 72, 4, generator=generator, dtype=torch.float64) * 40
    losses = []
    for _ in range(50):
        x = torch.randn(1, 3, 6, 6, generator=generator, dtype=torch.float64)
        boxes, scores = steps(x, *parameters)
        loss = ((boxes - wanted) / 40).square().mean() + (
            scores - (x[0, 0].reshape(-1).repeat(2) > 0).double()
        ).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses, parameters


def test_fifty_steps_of_the_kits_own_operators_give_torchs_loss_curve() -> None:
    (expected, theirs), (found, ours) = curve_of(torch_steps), curve_of(our_steps)
    assert expected[-1] < 0.7 * expected[0], "the network learns"
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
