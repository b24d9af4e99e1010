"""CPU time and memory of the kit's PyTorch operators, forward and backward, against torch's built-in ones in the same run. Needs `npuforge[torch]`, Linux.

    python -m npuforge.scripts.torch_benchmark --markdown docs/torch-operators.md --plot docs/torch-operators.svg

Each pair computes the same function of the same float32 tensors in turns, and the medians are compared. Both sides have one thread: torch is told so, and
numpy's matrix library, which reads its number of threads as it is loaded, by the environment of a child process that measures. Time is the process's CPU
time: what waiting for a busy machine costs is not in it, what shared caches cost meets both sides. Memory is the largest growth of the process's resident
set during one forward and backward.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from npuforge.hw_kernels.bindings.torch_ops import run

Function = Callable[..., Tensor]
SIDES = ("ours", "torch")
QUANTITIES = ("forward", "backward", "memory")
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)  # what the matrix libraries that numpy may have been built with read
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's mallopt


@dataclass(frozen=True)
class Pair:
    """One function in the kit's operators and in torch's. `parameters`: shapes of the tensors behind the input, all trained."""

    name: str
    ours: Function
    torchs: Function
    shape: tuple[int, ...] = (4, 32, 64, 64)
    parameters: tuple[tuple[int, ...], ...] = ()

    def tensors(self) -> list[Tensor]:
        """Leaves."""
        generator = torch.Generator().manual_seed(5)
        shapes = (self.shape, *self.parameters)
        return [torch.randn(s, generator=generator).requires_grad_() for s in shapes]


@dataclass
class Row:
    """Medians of a pair: CPU seconds forward and backward, bytes, by side."""

    name: str
    shape: tuple[int, ...]
    figures: dict[str, dict[str, float]]

    def ratio(self, quantity: str) -> float:
        """Ours over torch's."""
        return self.figures["ours"][quantity] / self.figures["torch"][quantity]


def _window(kernel: int, stride: int, pad: int) -> dict[str, Any]:
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}


def _batch_norm(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    mean, variance = torch.zeros_like(bias), torch.ones_like(bias)
    y: Tensor = run("BatchNormalization", x, scale, bias, mean, variance, outputs=3, training_mode=1)[0]
    return y


def _fused(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    mean, variance = torch.zeros_like(bias), torch.ones_like(bias)
    inputs = (x, weight, bias, scale, shift, mean, variance)
    y: Tensor = run("npuforge::ConvBnLeakyRelu", *inputs, alpha=0.1, **_window(3, 1, 1))
    return y


def _torch_fused(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    y = functional.conv2d(x, weight, bias, padding=1)
    y = functional.batch_norm(y, torch.zeros_like(bias), torch.ones_like(bias), scale, shift)
    return functional.leaky_relu(y, 0.1)


def _unary(name: str, torchs: Function, **attributes: Any) -> Pair:
    return Pair(name, lambda x: run(name, x, **attributes), torchs)


PAIRS = (
    _unary("LeakyRelu", lambda x: functional.leaky_relu(x, 0.1), alpha=0.1),
    _unary("npuforge::Silu", functional.silu),
    _unary("npuforge::ClipSigmoid", lambda x: torch.sigmoid(x).clip(0.1, 0.9)),
    _unary("com.example::CustomGELU", lambda x: functional.gelu(x, approximate="tanh")),
    _unary("Mish", functional.mish),
    _unary("HardSwish", functional.hardswish),
    Pair(
        "npuforge::ModSigmoid",
        lambda x, t: run("npuforge::ModSigmoid", x, t),
        lambda x, t: torch.sigmoid(x - t),
        parameters=((32, 1, 1),),
    ),
    Pair(
        "Conv",
        lambda x, w, b: run("Conv", x, w, b, **_window(3, 1, 1)),
        lambda x, w, b: functional.conv2d(x, w, b, padding=1),
        parameters=((32, 32, 3, 3), (32,)),
    ),
    Pair(
        "ConvTranspose",
        lambda x, w, b: run("ConvTranspose", x, w, b, **_window(4, 2, 1)),
        lambda x, w, b: functional.conv_transpose2d(x, w, b, stride=2, padding=1),
        shape=(4, 32, 32, 32),
        parameters=((32, 32, 4, 4), (32,)),
    ),
    Pair(
        "BatchNormalization, training",
        _batch_norm,
        lambda x, s, b: functional.batch_norm(x, None, None, s, b, training=True),
        parameters=((32,), (32,)),
    ),
    Pair("npuforge::ConvBnLeakyRelu", _fused, _torch_fused, parameters=((32, 32, 3, 3), (32,), (32,), (32,))),
    Pair("MaxPool", lambda x: run("MaxPool", x, **_window(2, 2, 0)), lambda x: functional.max_pool2d(x, 2)),
    Pair("Softmax", lambda x: run("Softmax", x, axis=1), lambda x: functional.softmax(x, 1)),
)


def _resident(field: str) -> int:
    """Bytes; VmRSS now, VmHWM the largest since the last reset."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (part for part in text.splitlines() if part.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def peak_growth(work: Callable[[], Any]) -> int:
    """Bytes by which the resident set grows at most while `work` runs and its result is held."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
    before = _resident("VmRSS")
    result = work()
    grown = _resident("VmHWM") - before
    del result
    return max(grown, 0)


def give_memory_back() -> None:
    """Large blocks come from the system and go back to it when they are freed, so that what was allocated before does not hide an allocation."""
    libc = ctypes.CDLL(None)
    for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        if libc.mallopt(option, 1 << 16) != 1:
            raise OSError("mallopt: this C library doesn't take a threshold, memory can't be measured; expected glibc")


def measure(pair: Pair, repeats: int) -> Row:
    """Both sides in turns; the first turn is not counted, the last measures memory."""
    tensors = pair.tensors()
    functions = {"ours": pair.ours, "torch": pair.torchs}
    taken: dict[str, dict[str, list[float]]] = {side: {q: [] for q in QUANTITIES} for side in SIDES}
    for turn in range(repeats + 1):
        for side in SIDES:
            start = time.process_time()
            y = functions[side](*tensors)
            middle = time.process_time()
            torch.autograd.grad(y, tensors, torch.ones_like(y))
            end = time.process_time()
            if turn > 0:
                taken[side]["forward"].append(middle - start)
                taken[side]["backward"].append(end - middle)
    for side in SIDES:

        def work(function: Function = functions[side]) -> Any:
            y = function(*tensors)
            return y, torch.autograd.grad(y, tensors, torch.ones_like(y))

        taken[side]["memory"] = [float(peak_growth(work))]
    medians = {side: {q: statistics.median(v) for q, v in by.items()} for side, by in taken.items()}
    return Row(pair.name, pair.shape, medians)


def markdown(rows: list[Row], repeats: int, load: tuple[float, float]) -> str:
    """The page."""

    def cells(row: Row) -> Iterator[str]:
        for quantity, unit in (("forward", 1e-3), ("backward", 1e-3), ("memory", 1e6)):
            ours, theirs = (row.figures[side][quantity] / unit for side in SIDES)
            yield f"{ours:.1f} / {theirs:.1f} | {row.ratio(quantity):.1f}"

    machine = f"PyTorch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, one thread on either side, numpy's matrix library included"
    lines = [
        "# PyTorch operators: time and memory",
        "",
        "Written by `python -m npuforge.scripts.torch_benchmark --markdown docs/torch-operators.md --plot docs/torch-operators.svg`; do not edit.",
        "",
        f"The kit's operators ([binding](own-operators.md#in-pytorch)) against torch's built-in ones, float32, {machine}; medians of {repeats} turns taken alternately. Load "
        f"average of the machine {load[0]:.1f} before and {load[1]:.1f} after: times are CPU time of the process. All figures are this machine's, the ratios too (they hang on its vector units, its "
        "caches and what else runs): read them to a factor of two or so, and run the command for another. "
        "Memory is the growth of the resident set during one forward and backward.",
        "",
        "![ours over torch's](torch-operators.svg)",
        "",
        "| operator | input | forward ms, ours / torch | ratio | backward ms, ours / torch | ratio | memory MB, ours / torch | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {r.name} | {'×'.join(map(str, r.shape))} | {' | '.join(cells(r))} |" for r in rows]
    lines += [
        "",
        "Ours are no way to train faster. Element-wise functions are one torch expression and its derivatives, without a kernel of their own; the others compute in",
        "numpy float64, the meaning that every other level is held to. Use them for operators that torch has not, and to check gradients; where torch has",
        "the operator, its own exports to the same ONNX node. What fusion buys on the NPU is another matter: [fusion.md](fusion.md).",
    ]
    return "\n".join(lines) + "\n"


def plot(rows: list[Row]) -> str:
    """Bars of the three ratios of every pair on a logarithmic axis from 0.5, as SVG."""
    left, width, low, bar = 190, 520, 0.5, 8
    high = max(2.0, *(row.ratio(q) for row in rows for q in QUANTITIES)) * 1.1
    colours = dict(zip(QUANTITIES, ("#2a7f62", "#c58b2a", "#b0413e"), strict=True))
    step = len(QUANTITIES) * bar + 10
    bottom = 40 + step * len(rows)

    def x(ratio: float) -> float:
        return left + width * math.log(max(ratio, low) / low) / math.log(high / low)

    parts = []
    for k, quantity in enumerate(QUANTITIES):
        parts.append(f'<rect x="{left + 110 * k}" y="6" width="10" height="10" fill="{colours[quantity]}"/>')
        parts.append(f'<text x="{left + 110 * k + 15}" y="15">{quantity}</text>')
    mark = 1.0
    while mark < high:
        parts.append(f'<line x1="{x(mark):.1f}" y1="32" x2="{x(mark):.1f}" y2="{bottom}" stroke="#bbb"/>')
        parts.append(f'<text x="{x(mark):.1f}" y="30" text-anchor="middle">{mark:g}×</text>')
        mark *= 10
    for i, row in enumerate(rows):
        top = 40 + i * step
        parts.append(f'<text x="{left - 8}" y="{top + 16}" text-anchor="end">{row.name}</text>')
        for k, quantity in enumerate(QUANTITIES):
            length = x(row.ratio(quantity)) - left
            parts.append(
                f'<rect x="{left}" y="{top + bar * k}" width="{length:.1f}" height="{bar - 1}" fill="{colours[quantity]}"/>'
            )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {bottom}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="torch_benchmark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9, help="turns of every pair (default 9)")
    parser.add_argument("--markdown", type=Path, help="write the page here, else to standard output")
    parser.add_argument("--plot", type=Path, help="write the picture here")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: expected 1 or more")
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        command = [sys.executable, "-m", "npuforge.scripts.torch_benchmark", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, **ONE_THREAD}, check=False).returncode)
    torch.set_num_threads(1)
    give_memory_back()
    before = os.getloadavg()[0]
    rows = [measure(pair, options.repeats) for pair in PAIRS]
    page = markdown(rows, options.repeats, (before, os.getloadavg()[0]))
    if options.plot:
        options.plot.write_text(plot(rows), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(page, encoding="utf-8")
    else:
        print(page, end="")


if __name__ == "__main__":
    main()
