"""Where the vendor's CPU tasks (Vitis AI Library 3.5, `cpu_task/ops`) compute what ONNX means, by XIR's built-in type.

Elsewhere a node of a CPU partition is written as a custom op, which our plug-in computes. Read in their sources, and run on whole files
(tests/e2e/test_vendor_tasks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Shapes = Sequence[Sequence[int]]
Holds = Callable[[dict[str, Any], Shapes, Sequence[int]], bool]


@dataclass(frozen=True)
class Task:
    """`holds(attributes, shapes of the inputs, shape of the output)`: whether the task is right; `where`: the same in words; `otherwise`: what it
    does elsewhere. docs/xmodel.md shows the words."""

    where: str
    otherwise: str
    holds: Holds = lambda attrs, inputs, output: True


def _trailing(attrs: dict[str, Any], inputs: Shapes, output: Sequence[int]) -> bool:
    """The task folds runs of neighbouring elements, and compares shapes as if the reduced axes stayed."""
    rank, axes = len(inputs[0]), attrs["axis"]
    return bool(attrs["keep_dims"]) and sorted(axes) == list(range(rank - len(axes), rank))


def _aligned_batches(attrs: dict[str, Any], inputs: Shapes, output: Sequence[int]) -> bool:
    """The task takes matrix `b % batches` of either operand, and wants the first operand to have the result's rank."""
    batch = list(output[:-2])

    def repeats(shape: Sequence[int]) -> bool:
        own = list(shape[:-2])
        while own and own[0] == 1:
            own.pop(0)
        return not own or own == batch[-len(own) :]

    return len(inputs[0]) == len(output) and all(repeats(shape) for shape in inputs)


_NOWHERE: Holds = lambda attrs, inputs, output: False  # noqa: E731
_ELEMENTS = Task("on float32, any broadcast", "other element types are read as float32")
_MOVES = Task("on float32", "other element types are read as float32")
_REDUCTION = Task(
    "over the last axes, `keep_dims`",
    "other axes: wrong values, status 0; without `keep_dims`, or axes that are not neighbours: ends the process",
    _trailing,
)
_EXPONENTIAL = "NaN from 89 on (the exponential of the value itself)"
TASKS: dict[str, Task] = {
    **dict.fromkeys(("sigmoid", "exp", "leaky-relu", "add", "sub", "mul", "div", "min", "max"), _ELEMENTS),
    **dict.fromkeys(("concat", "transpose", "strided_slice"), _MOVES),
    "reshape": Task("on any type", ""),
    **dict.fromkeys(("reduction_sum", "reduction_max"), _REDUCTION),
    "matmul": Task(
        "first operand of the result's rank, batches of either operand the result's last ones",
        "ends the process; batches that broadcast otherwise: wrong values",
        _aligned_batches,
    ),
    "tanh": Task("nowhere", _EXPONENTIAL, _NOWHERE),
    "softmax": Task("nowhere", f"{_EXPONENTIAL}; takes the last axis whatever `axis` says", _NOWHERE),
}
OURS = frozenset(  # the vendor has no task for them: our plug-in brings one
    (
        "relu",
        "relu6",
        "neg",
        "mish",
        "hard-swish",
        "hard-sigmoid",
        "reduction_mean",
        "reduction_product",
        "identity",
        "cast",
    )
)


def is_right(op_type: str, attrs: dict[str, Any], inputs: Shapes, output: Sequence[int]) -> bool:
    """Whether the vendor's runtime gives ONNX's result, by its task or by ours. KeyError for a type that nobody looked at."""
    return op_type in OURS or TASKS[op_type].holds(attrs, inputs, output)
