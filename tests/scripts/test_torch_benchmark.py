"""The benchmark of the PyTorch operators compares like with like and sees memory that is taken. Run where PyTorch is."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
import torch

from npuforge.scripts.torch_benchmark import PAIRS, QUANTITIES, Pair, Row, markdown, plot

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
def test_both_sides_of_a_pair_compute_the_same(pair: Pair) -> None:
    small = Pair(pair.name, pair.ours, pair.torchs, (2, pair.shape[1], 6, 8), pair.parameters)
    tensors = [t.detach().double().requires_grad_() for t in small.tensors()]
    results = []
    for function in (small.ours, small.torchs):
        y = function(*tensors)
        results.append((y, *torch.autograd.grad(y, tensors, torch.cos(y.detach()))))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


MEASURE = """
import torch
from npuforge.scripts.torch_benchmark import give_memory_back, peak_growth
give_memory_back()
def work():
    first = torch.ones(8 << 18)  # 8 MiB, freed before the second is taken
    del first
    return torch.ones(16 << 18)
work()
print(peak_growth(work), peak_growth(work))
"""


def test_memory_is_what_is_held_at_once() -> None:
    """In a process of its own: the thresholds of malloc stay as they are here."""
    found = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=300)
    for grown in map(int, found.stdout.split()):
        assert 16 << 20 <= grown < 17 << 20


def test_page_and_picture_say_the_ratio() -> None:
    figures = {"ours": dict.fromkeys(QUANTITIES, 0.006), "torch": dict.fromkeys(QUANTITIES, 0.002)}
    rows = [Row("Thing", (1, 2, 3), figures)]
    assert "| Thing | 1×2×3 | 6.0 / 2.0 | 3.0 | 6.0 / 2.0 | 3.0 |" in markdown(rows, 5, (1.0, 2.0))
    assert plot(rows).count("<rect") == 1 + 2 * len(QUANTITIES)
