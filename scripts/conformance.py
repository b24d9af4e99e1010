"""ONNX's own backend cases through our importer and the C++ CPU executor; generates docs/conformance.md.

`python -m npuforge.scripts.conformance` prints the figures, `--markdown` the page, `--only NAME …` single cases. ONNX Runtime cannot be
imported while it runs.

Every case is tried. A case that does not pass is *excluded* if it needs what the kit does not claim (an operator without C++ implementation, a number
type the executor does not have, sequences, strings, a training mode), else it is *failed*.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from npuforge.compile.ir.errors import NpuforgeError

DATA = Path(onnx.backend.test.__file__).parent / "data"
GROUPS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
RTOL, ATOL = 1e-4, 1e-5
FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
INTEGERS = {TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.UINT8, TensorProto.INT8}

# Inputs (by position) that exported networks carry as constants: shapes, axes, pads, limits. The cases give them at run time; here they are bound to
# the case's values before the import, because a compiled network's shapes are static.
PARAMETERS: dict[str, tuple[int, ...]] = {
    **{
        op: (1,)
        for op in ("Reshape", "Expand", "Tile", "TopK", "Squeeze", "Unsqueeze", "Split", "OneHot", "CumSum", "CumProd")
    },
    **{op: (1,) for op in ("CenterCropPad", "Trilu", "Upsample", "AffineGrid", "Dropout")},
    **{
        f"Reduce{kind}": (1,)
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    },
    **{op: (0,) for op in ("ConstantOfShape", "EyeLike")},
    **{op: (0, 1, 2) for op in ("Range",)},
    **{op: (1, 2, 3, 4) for op in ("Slice",)},
    **{op: (1, 3) for op in ("Pad",)},
    **{op: (1, 2, 3) for op in ("Resize",)},
    **{op: (2, 3, 4) for op in ("NonMaxSuppression",)},
    **{op: (1, 2) for op in ("Col2Im", "Dropout")},
    **{op: (2,) for op in ("MaxUnpool",)},
}


@dataclass
class Outcome:
    """What became of one case. `status`: passed, failed or excluded; `floating`: it has a float input or output."""

    group: str
    name: str
    operators: list[str]
    floating: bool
    status: str
    reason: str = ""


class Excluded(Exception):
    """The case needs something the kit does not claim."""


# ---- the cases
def cases(groups: tuple[str, ...] = GROUPS) -> Iterator[tuple[str, str, Path]]:
    """(group, name, model file) of every case that the installed onnx package brings along."""
    for group in groups:
        if group == "light":
            for path in sorted((DATA / group).glob("*.onnx")):
                yield group, path.stem, path
        else:
            for folder in sorted(p for p in (DATA / group).iterdir() if (p / "model.onnx").is_file()):
                yield group, folder.name, folder / "model.onnx"


def _tensor(path: Path, value: onnx.ValueInfoProto | None) -> np.ndarray:
    if value is not None and value.type.HasField("tensor_type") is False:
        raise Excluded("sequences and optionals: a network on a board has tensors")
    proto = onnx.TensorProto()
    proto.ParseFromString(path.read_bytes())
    if proto.data_type == TensorProto.STRING:
        raise Excluded("strings")
    return np.asarray(numpy_helper.to_array(proto))


def data_sets(path: Path, model: onnx.ModelProto) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Inputs and expected outputs. The `light` models come with the output for a ramp 0..1 as input."""
    constants = {i.name for i in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in constants]
    if path.name != "model.onnx":
        ramps = []
        for value in inputs:
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            ramps.append((np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32))
        yield (
            ramps,
            [_tensor(path.with_name(f"{path.stem}_output_{i}.pb"), v) for i, v in enumerate(model.graph.output)],
        )
        return
    for folder in sorted(path.parent.glob("test_data_set_*")):
        given = [
            _tensor(folder / f"input_{i}.pb", v) for i, v in enumerate(inputs) if (folder / f"input_{i}.pb").is_file()
        ]
        yield given, [_tensor(folder / f"output_{i}.pb", v) for i, v in enumerate(model.graph.output)]


# ---- running one
def run_case(group: str, name: str, path: Path) -> Outcome:
    """Imports, runs and compares one case."""
    model = onnx.load(path)
    operators = sorted(
        {f"{n.domain}::{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in _nodes(model.graph)}
    )
    types = {
        v.type.tensor_type.elem_type
        for v in (*model.graph.input, *model.graph.output)
        if v.type.HasField("tensor_type")
    }
    outcome = Outcome(group, name, operators, bool(types & FLOATS), "passed")
    given: list[np.ndarray] = []
    try:
        for inputs, expected in data_sets(path, model):
            given = inputs
            found = _execute(model, inputs)
            try:
                _compare(found, expected)
            except AssertionError as error:
                raise AssertionError(f"{error}; {_explain(model, inputs, found)}") from error
    except Excluded as error:
        outcome.status, outcome.reason = "excluded", str(error)
    except (NpuforgeError, AssertionError) as error:
        reason = " ".join(str(error).split())
        excluded = _not_claimed(operators, types, given, reason)
        outcome.status, outcome.reason = ("excluded", excluded) if excluded else ("failed", reason)
    return outcome


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _not_claimed(operators: list[str], types: set[int], given: list[np.ndarray], reason: str) -> str:
    """Why a case that did not pass is not one the kit claims; empty if it is."""
    from npuforge.compile.steps.infer import find_operator
    from npuforge.compile.steps.partition import cpu_operators

    missing = [op for op in operators if op != "Constant" and op not in cpu_operators() and find_operator(op) is None]
    if missing:
        return f"operator {', '.join(missing)}: no C++ implementation"
    for code in sorted(types - FLOATS - INTEGERS):
        return f"number type {helper.tensor_dtype_to_string(code).removeprefix('TensorProto.').lower()}"
    if "training mode" in reason:
        return "training mode"
    if any(x.size == 0 for x in given):
        return "an input without elements (a 0 in a file's input shape means a dynamic dimension)"
    largest = float(np.finfo(np.float32).max)
    if any(x.dtype == np.float64 and (np.abs(x[np.isfinite(x)]) > largest).any() for x in given):
        return "values beyond float32's range"
    return ""


def _execute(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    from npuforge.board_runtime.session import Session
    from npuforge.compile.host_program import float_graph, host_program

    constants = {i.name for i in model.graph.initializer}
    given = dict(zip([v.name for v in model.graph.input if v.name not in constants], inputs, strict=False))
    session = Session(host_program(float_graph(bind_parameters(model, given))))
    names = [v.name for v in model.graph.output]
    outputs = session.run({spec.name: _executable(given[spec.name]) for spec in session.inputs})
    return [outputs[name] for name in names]


def _executable(value: np.ndarray) -> np.ndarray:
    """Every float type becomes float32, as in the importer."""
    with np.errstate(over="ignore"):
        return value.astype(np.float32) if value.dtype.kind == "f" or value.dtype.name == "bfloat16" else value


def _parameters(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> set[str]:
    """Inputs that reach a position named in PARAMETERS, directly or through arithmetic (not through a tensor's shape)."""
    producers = {t: n for n in model.graph.node for t in n.output}
    pending = [n.input[i] for n in model.graph.node for i in PARAMETERS.get(n.op_type, ()) if i < len(n.input)]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name in given:
            found.add(name)
        node = producers.get(name)
        if node is not None and node.op_type not in ("Shape", "Size"):
            pending += [t for t in node.input if t not in given or given[t].dtype.kind in "iu"]
    return found


def bind_parameters(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A copy with the inputs named in PARAMETERS as initialisers, and stale inner shapes removed."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    parameters = _parameters(model, given)
    inputs = [v for v in bound.graph.input if v.name not in parameters]
    del bound.graph.input[:]
    bound.graph.input.extend(inputs)
    bound.graph.initializer.extend(numpy_helper.from_array(given[name], name) for name in sorted(parameters))
    for value in bound.graph.input:  # cases with open dimensions: this data set's
        if value.name in given and value.type.HasField("tensor_type"):
            shape = value.type.tensor_type.shape
            for dim, size in zip(shape.dim, given[value.name].shape, strict=False):
                dim.dim_value = size
    return bound


def _compare(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        assert got.shape == want.shape, f"output {i} has shape {got.shape}, expected {want.shape}"
        if want.dtype.kind == "f" or want.dtype.name == "bfloat16":
            assert got.dtype == np.float32, f"output {i} is {got.dtype}, expected {want.dtype}"
            rtol = max(RTOL, float(np.finfo(np.float16).eps)) if want.dtype == np.float16 else RTOL
            rtol = 2.0**-7 if want.dtype.name == "bfloat16" else rtol  # one unit in the last place of the narrow type
            _close(got.astype(np.float64), want.astype(np.float64), rtol, i)
        else:
            assert got.dtype == want.dtype, f"output {i} is {got.dtype}, expected {want.dtype}"
            assert np.array_equal(got, want), f"output {i}: {np.sum(got != want)} of {want.size} values differ"


ALIGNED = "scale * length is no integer here: the length of the result enters the formula as an integer, as ONNX's text and ONNX Runtime have it"
EXPLAINED = {
    "resize_downsample_scales_cubic_align_corners": ALIGNED,
    "resize_downsample_scales_linear_align_corners": ALIGNED,
}


def _explain(model: onnx.ModelProto, inputs: list[np.ndarray], found: list[np.ndarray]) -> str:
    """Why values may differ from those in the file."""
    name = model.graph.name.removeprefix("test_")
    if name in EXPLAINED:
        return EXPLAINED[name]
    constants = {i.name for i in model.graph.initializer}
    feeds = dict(zip([v.name for v in model.graph.input if v.name not in constants], inputs, strict=False))
    try:
        _compare(found, [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)])
    except Exception as error:  # whatever the reference implementation throws
        return f"not explained ({error})"
    return "ONNX's reference implementation gives our values within the tolerance, not those in the file"


def _close(got: np.ndarray, want: np.ndarray, rtol: float, index: int) -> None:
    good = np.isclose(got, want, rtol=rtol, atol=ATOL, equal_nan=True)
    if not good.all():
        with np.errstate(invalid="ignore"):
            worst = np.nanmax(np.abs(got - want))
        raise AssertionError(f"output {index}: {np.sum(~good)} of {want.size} values differ, by up to {worst:.3g}")


# ---- the page
def markdown(outcomes: list[Outcome]) -> str:
    """The generated page docs/conformance.md."""
    lines = [
        "# Conformance",
        "",
        f"Generated by `python -m npuforge.scripts.conformance --markdown > docs/conformance.md` with onnx {onnx.__version__}; do not edit. ONNX's own backend",
        "cases go through our importer, fold and fuse and then through the C++ CPU executor, as one float partition; ONNX Runtime is not importable in that",
        f"run. Tolerance: rtol {RTOL:g}, atol {ATOL:g}; one unit in the last place where the expected values are float16 or bfloat16 (computed in float32 here);",
        "integers exactly. Shapes, axes, pads and limits that a case hands in at run time are bound to its values first, as networks carry them.",
        "",
        "*Float cases of covered operators*: cases with a float input or output, all of whose operators have a C++ implementation, and that need no training",
        "mode and no number type outside float32 (16- and 64-bit floats are computed as such), int64, int32, bool, uint8, int8.",
        "",
        "| group | cases | passed | failed | excluded | float cases of covered operators | of these passed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for group in (*GROUPS, "all"):
        rows = [o for o in outcomes if group in (o.group, "all")]
        count = Counter(o.status for o in rows)
        covered = [o for o in rows if o.floating and o.status != "excluded"]
        passed = sum(o.status == "passed" for o in covered)
        share = f"{passed} ({100 * passed / len(covered):.1f} %)" if covered else "0"
        lines.append(
            f"| {group} | {len(rows)} | {count['passed']} | {count['failed']} | {count['excluded']} | {len(covered)} | {share} |"
        )
    lines += ["", "## Failed", ""]
    failed = [o for o in outcomes if o.status == "failed"]
    lines += [f"- `{o.group}/{o.name}`: {_escape(o.reason)}" for o in failed] or ["None."]
    lines += ["", "## Excluded", ""]
    reasons: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.status == "excluded":
            reasons.setdefault(outcome.reason, []).append(outcome)
    for reason, rows in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        names = ", ".join(o.name.removeprefix("test_") for o in rows)
        lines.append(f"- **{_escape(reason)}** ({len(rows)}): {names}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="print docs/conformance.md")
    parser.add_argument("--json", action="store_true", help="print every outcome as a JSON line")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group (may be repeated)")
    parser.add_argument("--only", nargs="+", default=[], help="only cases of these names")
    parser.add_argument("--every", type=int, default=1, help="only every n-th case")
    options = parser.parse_args(arguments)
    sys.modules["onnxruntime"] = None  # type: ignore[assignment]  # from here on it cannot be imported
    faulthandler.enable()
    chosen = list(cases(tuple(options.group or GROUPS)))[:: options.every]
    if options.only:
        chosen = [c for c in chosen if c[1] in options.only or c[1].removeprefix("test_") in options.only]

    outcomes: list[Outcome] = []
    for group, name, path in chosen:
        outcomes.append(run_case(group, name, path))
        if options.json:
            print(json.dumps(asdict(outcomes[-1])), flush=True)
    assert sys.modules["onnxruntime"] is None
    if options.markdown:
        print(markdown(outcomes), end="")
    elif not options.json:
        print(markdown(outcomes).split("## Excluded")[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
