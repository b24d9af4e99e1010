"""Speed of a compiled network on a device, beside a float run of the same network: what `npuforge bench` prints. No typer in here.

Both run in this process on the same input, in turns, so that a busy machine slows both; the figure is the ratio of the medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from npuforge.board_runtime.devices import AnySession, open_session
from npuforge.compile.ir.errors import FormatError, UsageError
from npuforge.compile.onnx_runner import OPERATOR_DOMAINS, make_session
from npuforge.compile.steps.onnx_nodes import operator_name
from npuforge.scripts.build_folder import Build, open_build

PEERS = ("onnxruntime",)
INSTRUCTION_SETS = ("auto", "scalar", "avx2", "avx512")
ROUNDS = 10  # turns of each side


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one inference."""

    median: float
    fastest: float
    percentile_90: float
    runs: int


@dataclass(frozen=True)
class BenchResult:
    """What `bench` found. `ratio`: device over peer, medians; at most 1.0 means that the device is as fast. None without a peer."""

    model: str
    device: str
    threads: int
    level: str
    timing: Timing
    peer: str | None = None
    peer_timing: Timing | None = None
    ratio: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """What a user reads."""
        side = f"{self.device} ({self.level})" if self.level else self.device
        found = [f"{self.model}, {self.threads} threads", _line(side, self.timing)]
        if self.peer is not None and self.peer_timing is not None and self.ratio is not None:
            found.append(_line(self.peer, self.peer_timing))
            if self.level and self.level != best_instruction_set():
                found.append(
                    f"{self.peer} cannot be forced: it chooses the instruction set itself (this processor has {best_instruction_set()}); "
                    f"a processor with {self.level} only may give another ratio"
                )
            found.append(f"ratio {self.ratio:.2f} ({self.device} / {self.peer}, medians)")
        return found


def _line(name: str, t: Timing) -> str:
    return f"{name:<22} median {t.median:7.2f} ms   fastest {t.fastest:7.2f} ms   90 % {t.percentile_90:7.2f} ms   {t.runs} runs"


def bench(
    folder: Path,
    *,
    device: str = "sim",
    board: Path | None = None,
    threads: int = 2,
    runs: int = 100,
    peer: str | None = None,
    isa: str = "auto",
    progress: Callable[[str, int, int], None] | None = None,
) -> BenchResult:
    """Times `runs` inferences of the build in `folder`, after warm-up; with `peer`, the same number of the float network in turns.

    `isa`: the processor's instruction set that `sim` uses (`INSTRUCTION_SETS`); UsageError for one that this processor lacks.
    """
    if peer is not None and peer not in PEERS:
        raise UsageError(f"--peer {peer}: expected one of {', '.join(PEERS)}")
    if runs < 1 or threads < 1:
        raise UsageError(f"--runs and --threads: expected at least 1, found {runs} and {threads}")
    build = open_build(folder)
    if isa not in INSTRUCTION_SETS:
        raise UsageError(f"--isa {isa}: expected one of {', '.join(INSTRUCTION_SETS)}")
    if isa != "auto" and device != "sim":
        raise UsageError(f"--isa {isa}: only the device sim has instruction sets, found --device {device}")
    session = open_session(build.folder, device, threads, level=isa, board=board)
    feeds = random_feeds(session)
    sides: list[Callable[[], object]] = [lambda: session.run(feeds)]
    if peer is not None:
        sides.append(onnxruntime_side(build, session, feeds, threads))
    per_round = -(-runs // ROUNDS)
    samples = [time_turns(side, 0, min(3, runs)) for side in sides]  # warm-up, not counted
    samples = [[] for _ in sides]
    for number in range(-(-runs // per_round)):
        for kept, side in zip(samples, sides, strict=True):
            kept += time_turns(side, 1, per_round)
        if progress is not None:
            progress("bench", min(runs, (number + 1) * per_round), runs)
    timings = [summarise(kept) for kept in samples]
    level = "" if device != "sim" else best_instruction_set() if isa == "auto" else isa
    if peer is None:
        return BenchResult(session.name, device, threads, level, timings[0])
    ratio = timings[0].median / timings[1].median
    return BenchResult(session.name, device, threads, level, timings[0], peer, timings[1], ratio)


def time_turns(side: Callable[[], object], settle: int, count: int) -> list[float]:
    """Milliseconds of `count` calls, after `settle` calls that wake sleeping threads."""
    for _ in range(settle):
        side()
    found = []
    for _ in range(count):
        start = time.perf_counter()
        side()
        found.append((time.perf_counter() - start) * 1e3)
    return found


def summarise(samples: list[float]) -> Timing:
    """Median, fastest and 90th percentile."""
    return Timing(float(np.median(samples)), min(samples), float(np.percentile(samples, 90)), len(samples))


def random_feeds(session: AnySession) -> dict[str, np.ndarray]:
    """Random input tensors as the ONNX network takes them; the values have no influence on speed."""
    rng = np.random.default_rng(0)
    feeds = {}
    for spec in session.inputs:
        low, high = (0, 256) if spec.image else (-1, 2)
        feeds[spec.name] = rng.uniform(low, high - 1, size=spec.shape).astype(np.float32)
    return feeds


def refuse_own_operators(model: onnx.ModelProto, where: str) -> None:
    """UsageError names the operators that ONNX Runtime alone does not have: it cannot be timed on them."""
    own = sorted({operator_name(n.domain, n.op_type) for n in model.graph.node if n.domain not in OPERATOR_DOMAINS})
    if own:
        raise UsageError(
            f"--peer onnxruntime: {where} has {', '.join(own)}, which ONNX Runtime does not have; bench without --peer, or the network without them"
        )


def onnxruntime_side(
    build: Build, session: AnySession, feeds: dict[str, np.ndarray], threads: int
) -> Callable[[], object]:
    """The build's float network in ONNX Runtime on as many threads."""
    network = onnx.load(build.reference)
    refuse_own_operators(network, str(build.reference))
    model = make_session(network, ["CPUExecutionProvider"], threads)
    names = {spec.name for spec in session.inputs}
    wanted = {node.name for node in model.get_inputs()}
    if names != wanted:
        raise FormatError(
            f"{build.reference}: expected the inputs {', '.join(sorted(names))}, found {', '.join(sorted(wanted))}"
        )
    return lambda: model.run(None, feeds)


def best_instruction_set() -> str:
    """What `auto` stands for on this processor."""
    import npuforge.board_runtime._native as native

    return str(native.sim.best_level())
