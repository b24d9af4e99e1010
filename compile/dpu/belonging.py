"""Whether a compiled `model.xmodel` was made from the `quantised.xmodel` beside it: one that was put into the folder by hand may be any.

The vendor's compiler writes the MD5 sums of the files that it read into its file (`files_md5sum`, by path): where it read a `quantised.xmodel`, the sum must be that
of ours. A file without such an entry is held against the network's inputs and outputs alone: names, shapes, fix points, order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import XModel, XOp
from npuforge.compile.xir.validate import read_checked

FIX_FORM = "quantised.xmodel"
COMMAND = f"vai_c_xir -x {FIX_FORM} -a arch.json -o . -n model"  # in the build's folder


def check_belongs(compiled: XModel, path: Path) -> None:
    """`path`: the compiled file, in its build's folder. FormatError, with what is unlike, where it was made of another network."""
    source = path.with_name(FIX_FORM)
    fix_form = read_checked(source)
    problem = _unlike_source(compiled, source) or _unlike_edges(compiled, fix_form)
    if problem:
        raise FormatError(f"{path}: not compiled from the {FIX_FORM} beside it: {problem}; run there: {COMMAND}")


def _unlike_source(compiled: XModel, source: Path) -> str:
    if "npuforge_mode" in compiled.attrs:
        return "it is for npuforge's own NPU"
    sums = compiled.attrs["files_md5sum"].value if "files_md5sum" in compiled.attrs else {}
    known = sorted(value for name, value in sums.items() if PurePosixPath(name).name == source.name)
    own = hashlib.md5(source.read_bytes(), usedforsecurity=False).hexdigest()
    return f"it names the MD5 sum {known[0]}, expected {own}" if known and own not in known else ""


def _unlike_edges(compiled: XModel, fix_form: XModel) -> str:
    ops = {op.name: op for op in compiled.ops}
    for source in (op for op in fix_form.ops if op.type == "data"):
        found = ops.get(source.name)
        if found is None:
            return f"it has no input {source.name!r}"
        fixed = next((op for op in fix_form.ops if op.type == "fix" and list(op.inputs()) == [source.name]), None)
        problem = _unlike(f"input {source.name!r}", fixed or source, found)
        if problem:
            return problem
    outputs, returned = (m.attrs["return_ops"].value if "return_ops" in m.attrs else [] for m in (fix_form, compiled))
    if list(outputs) != list(returned):
        return f"its outputs are {', '.join(returned) or 'none'}, expected {', '.join(outputs)}"
    expected = {op.name: op for op in fix_form.ops}
    for name in outputs:
        found = output_op(ops, name)
        problem = _unlike(f"output {name!r}", expected[name], found) if found is not None else ""
        if problem:
            return problem
    return ""


def output_op(ops: Mapping[str, XOp], name: str) -> XOp | None:
    """The op of a compiled file that gives the output `name` of `return_ops`: of a value that leaves the DPU the compiler makes a float one, `<name>_`."""
    made = ops.get(f"{name}_")
    is_made = made is not None and (
        made.type == "fix2float" or name not in ops
    )  # a node of the network may have that name
    return made if is_made else ops.get(name)


def _unlike(what: str, expected: XOp, found: XOp) -> str:
    """The first axis may be the hardware's batch."""
    if expected.tensor.shape[1:] != found.tensor.shape[1:]:
        return f"{what} has shape {found.tensor.shape}, expected {expected.tensor.shape}"
    points = [op.tensor.attrs.get("fix_point") or op.attrs.get("fix_point") for op in (expected, found)]
    values = [None if point is None else point.value for point in points]
    return (
        f"{what} has fix point {values[1]}, expected {values[0]}"
        if None not in values and values[0] != values[1]
        else ""
    )
