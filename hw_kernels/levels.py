"""Levels of an operator: what its class and folder declare, and why where they don't. Read by the contract test and by docs/operators.md.

float: the reference · gradient · CPU: cpu.hpp · int8: integer semantics (fine and pow2) · bf16 · HLS: engine or kernel.hpp · DSL: NPU program.
"""

from __future__ import annotations

from pathlib import Path

from npuforge.hw_kernels.operator import Op, registry

LEVELS = ("float", "gradient", "CPU", "int8", "HLS", "DSL")
FOLDER = Path(__file__).parent / "ops"


def folder(op: Op) -> Path | None:
    """The operator's folder, None for one of another package."""
    parts = type(op).__module__.split(".")
    found = FOLDER / parts[-2] if len(parts) > 1 else None
    return found if found is not None and found.is_dir() else None


def _has_file(op: Op, name: str) -> bool:
    where = folder(op)
    return where is not None and (where / name).is_file()


def declared(op: Op, level: str) -> bool:
    """Whether the operator itself has the level."""
    if level == "float":
        return type(op).reference is not Op.reference
    if level == "gradient":
        return type(op).gradient is not Op.gradient and not op.no_gradient
    if level == "CPU":
        return _has_file(op, "cpu.hpp")
    if level == "int8":
        return type(op).integer is not Op.integer
    if level == "HLS":
        return op.program is not None or op.kernel is not None
    assert level == "DSL"
    return op.program is not None


def runs_as(op: Op) -> list[str]:
    """Names of the NPU operators that the import turns this one into."""
    own = {*op.names, *op.onnx}
    return sorted(
        {
            n
            for n, other in registry().items()
            if other.program is not None and other is not op and own & set(other.onnx)
        }
    )


def reason(op: Op, level: str) -> str:
    """Why the level is missing, empty where nothing says why."""
    if level == "gradient":
        return op.no_gradient
    if level in ("CPU", "int8", "HLS", "DSL") and op.lowers_to:
        return "lowered at import to " + ", ".join(op.lowers_to)
    if level in ("int8", "HLS", "DSL"):
        if runs_as(op):
            return "as " + ", ".join(runs_as(op))
        return "; ".join(" ".join((c.__doc__ or "").split()) for c in op.constraints)
    return ""
