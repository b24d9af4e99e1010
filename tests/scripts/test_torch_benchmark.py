"""The benchmark of the PyTorch operators compares like with like and sees memory that is taken. Run where PyTorch is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
import torch

from npuforge.scripts import torch_benchmark
from npuforge.scripts.torch_benchmark import ONE_THREAD, PAIRS, QUANTITIES, Pair, Row, markdown, plot

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


THREADS = """
import os
import numpy as np
a = np.ones((700, 700))
a @ a
print(len(os.listdir("/proc/self/task")))
"""


def test_the_environment_of_the_child_leaves_numpy_one_thread() -> None:
    """Asked of the system, not of the library."""
    without = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    count = {}
    for limited in (True, False):
        environment = {**without, **(ONE_THREAD if limited else {})}
        found = subprocess.run(
            [sys.executable, "-c", THREADS], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        count[limited] = int(found.stdout)
    assert count[True] == 1
    if (os.cpu_count() or 1) > 1:
        assert count[False] > 1, "the library takes one thread anyway: the test can't fail here"


def test_what_is_measured_runs_in_that_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], env: dict[str, str], check: bool) -> subprocess.CompletedProcess[str]:
        calls.append((command, env))
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch_benchmark.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["torch_benchmark", "--repeats", "1"])
    with pytest.raises(SystemExit) as end:
        torch_benchmark.main()
    assert end.value.code == 3
    ((command, environment),) = calls
    assert command[1:] == ["-m", "npuforge.scripts.torch_benchmark", "--repeats", "1"]
    assert ONE_THREAD.items() <= environment.items()


def test_page_and_picture_say_the_ratio() -> None:
    figures = {"ours": dict.fromkeys(QUANTITIES, 0.006), "torch": dict.fromkeys(QUANTITIES, 0.002)}
    rows = [Row("Thing", (1, 2, 3), figures)]
    assert "| Thing | 1×2×3 | 6.0 / 2.0 | 3.0 | 6.0 / 2.0 | 3.0 |" in markdown(rows, 5, (1.0, 2.0))
    assert plot(rows).count("<rect") == 1 + 2 * len(QUANTITIES)
