"""The bundle's sample: one input of the network (`sample.npz`) and what the integer graph makes of it (`expected.npz`), so that a board can be checked
without the model's images. The input is the first calibration sample; where there was none, one drawn with a fixed seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.context import Context
from npuforge.compile.integer_graph import executor_of, feeds_of
from npuforge.compile.ir.errors import CalibrationError, InputError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.image import to_tensor
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.samples import Inputs, InputSpec, input_specs, load_sample
from npuforge.compile.reference import NodesExecutor
from npuforge.compile.steps.output_loss import notice, poor_outputs
from npuforge.hw_kernels.arch import Arch

SAMPLE, EXPECTED = "sample.npz", "expected.npz"
DRAWN = "drawn"  # origin of a sample that is no file
TRIED = 16  # calibration samples that are tried for one with rows in every output
_NO_SAMPLE = "no expected outputs are in the bundle, `npuforge run --check` cannot be used"


def write_sample(ctx: Context, arch: Arch, folder: Path, fixed_size: bool = False) -> dict[str, Any]:
    """Writes both files into `folder`; the manifest's entry. `inputs` and `outputs`: their names; `origin`: the calibration sample's name; `comparison`:
    how a device's outputs are compared (docs/formats.md); `tensors`: of every output shape, dtype and the sha256 of its bytes (C order, little-endian).
    Empty, with a notice, where the network cannot be run on the sample: that alone is no reason to refuse it. `fixed_size`: of the outputs only those whose size
    does not depend on the data, and none of integers, which a step of a DPU's HardSwish may tip: for a DPU."""
    assert ctx.qgraph is not None
    graph = ctx.qgraph.graph
    try:
        chosen, outputs = _sample_with_rows(ctx, arch, folder / SAMPLE)
        poor = _poor_outputs(ctx, folder / SAMPLE, outputs)
    except (CalibrationError, InputError):
        raise  # a sample that cannot be read
    except (
        Exception
    ) as error:  # a node of the CPU partition that ONNX Runtime does not have, or that drawn values break
        (folder / SAMPLE).unlink()
        first = (str(error).splitlines() or [type(error).__name__])[0]
        ctx.note([f"{_NO_SAMPLE}: {first}"])
        return {}
    if poor:
        ctx.note([notice(poor, DRAWN if chosen is None else chosen.name)])
    if fixed_size:
        sizes = {name: graph.tensors[name].shape for name in outputs}
        outputs = {n: v for n, v in outputs.items() if all(d > 0 for d in sizes[n]) and v.dtype.kind == "f"}
        if not outputs:
            (folder / SAMPLE).unlink()
            ctx.note([f"{_NO_SAMPLE}: no output holds real numbers and has a size that does not depend on the data"])
            return {}
    empty = [name for name, value in outputs.items() if value.size == 0]
    if empty:
        ctx.note(
            [
                f"output {', '.join(empty)}: the bundle's sample gives no rows, so `npuforge run --check` compares nothing of it; "
                "calibrate with images that show what the network detects"
            ]
        )
    np.savez_compressed(folder / EXPECTED, **outputs)  # type: ignore[arg-type]
    return {
        "inputs": SAMPLE,
        "outputs": EXPECTED,
        "origin": DRAWN if chosen is None else chosen.name,
        "comparison": "cosine" if has_islands(graph) or (fixed_size and is_approximated(graph)) else "values",
        "tensors": {
            name: {
                "shape": list(value.shape),
                "dtype": value.dtype.name,
                "sha256": hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest(),
            }
            for name, value in outputs.items()
        },
    }


def _poor_outputs(ctx: Context, file: Path, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Outputs of a `pow2` build that are far from the float network's, whose one scale per tensor not every network bears."""
    assert ctx.qgraph is not None
    graph = ctx.qgraph.graph
    if ctx.qgraph.mode != "pow2":
        return {}
    return poor_outputs(graph, load_sample(file, ctx.preprocess, input_specs(graph)).inputs, outputs)


def _sample_with_rows(ctx: Context, arch: Arch, file: Path) -> tuple[Path | None, dict[str, np.ndarray]]:
    """Writes the sample into `file`; where it is from (None: drawn) and what is made of it. The first calibration sample; where the network picks its
    rows itself, the first with rows in every output of those tried, if there is one."""
    assert ctx.qgraph is not None
    qgraph, calibration, specs = ctx.qgraph, ctx.options.calibration, input_specs(ctx.qgraph.graph)
    executor = executor_of(qgraph, lambda: arch, NodesExecutor(qgraph.graph))

    def run(chosen: Path | None) -> dict[str, np.ndarray]:
        inputs = (
            drawn_inputs(specs, ctx.preprocess, ctx.options.inputs)
            if chosen is None
            else load_sample(chosen, ctx.preprocess, specs, ctx.options.inputs).inputs
        )
        np.savez_compressed(file, **inputs)  # type: ignore[arg-type]
        sample = load_sample(file, ctx.preprocess, specs)  # as whoever checks a board will read it
        found = executor.run_outputs(feeds_of(qgraph, sample))
        return {name: np.asarray(value) for name, value in found.items()}

    for chosen in calibration[:TRIED]:
        outputs = run(chosen)
        if all(value.size for value in outputs.values()):
            return chosen, outputs
    first = calibration[0] if calibration else None
    return first, run(first)


def has_islands(graph: Graph) -> bool:
    """Whether the NPU reads what the CPU partition computed in float: another order of its sums, right as well, moves int8 values by a step."""
    written = {t for n in graph.nodes if n.device != "NPU" for t in n.outputs}
    return any(t in written for p in graph.partitions if p.device == "NPU" for t in p.inputs)


def is_approximated(graph: Graph) -> bool:
    """Whether a DPU's HardSwish, which is up to 3 steps off ours (docs/targets.md), takes part."""
    return any(n.device == "NPU" and n.activation.kind == "HardSwish" for n in graph.nodes)


def drawn_inputs(specs: Mapping[str, InputSpec], record: Preprocess, fixed: Inputs) -> dict[str, np.ndarray]:
    """Pixels 0..255 as the record makes a tensor of them, normal floats for other inputs, zeros for integers (an index is in range); seed 0."""
    random = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for name, spec in specs.items():
        if name in fixed:
            found[name] = fixed[name]
        elif record.takes_image and name == record.input:
            channels = spec.shape[-1] if record.layout == "NHWC" else spec.shape[1]
            pixels = random.integers(0, 256, (record.height, record.width, channels), dtype=np.uint8)
            found[name] = to_tensor(pixels, record).astype(spec.dtype)
        elif np.dtype(spec.dtype).kind == "f":
            found[name] = random.normal(size=spec.shape).astype(spec.dtype)
        else:
            found[name] = np.zeros(spec.shape, spec.dtype)
    return found
