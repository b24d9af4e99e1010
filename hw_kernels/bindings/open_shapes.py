"""Output shapes where torch holds sizes open (`SymInt`): an operator's `infer` may need numbers, and a number would fix the size in the exported
network. So `infer` is asked for numbers near the example's, and where every output size follows the open sizes in a straight line, it is written as that."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from npuforge.compile.ir.errors import NpuforgeError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.operator import Op

STEPS = (1, 2, 3, 5)  # sizes that are tried beyond the example's: a stride, a divisor or a product shows in one of them


def infer_open(op: Op, node: Node, shapes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """As `op.infer`; sizes of the result may be expressions of open sizes, None or -1 is what only the data decide."""
    if any(isinstance(d, torch.SymInt) for shape in shapes for d in shape):
        found = _straight(op, node, shapes)
        if found is not None:
            return found
    return list(op.infer(node, [tuple(s) for s in shapes]))


def _straight(op: Op, node: Node, shapes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]] | None:
    """None where a size has no example, does not follow in a straight line, or another value of it does not fit the operator."""
    sizes: dict[str, Any] = {str(d.node.expr): d for s in shapes for d in s if isinstance(d, torch.SymInt)}
    examples = {name: d.node.hint for name, d in sizes.items()}
    if any(not isinstance(value, int) for value in examples.values()):
        return None

    def at(values: dict[str, int]) -> list[tuple[Any, ...]]:
        numbers = [tuple(values[str(d.node.expr)] if isinstance(d, torch.SymInt) else d for d in s) for s in shapes]
        return [tuple(s) for s in op.infer(node, numbers)]

    try:
        base = at(examples)
        slopes = {name: _difference(at(examples | {name: value + 1}), base) for name, value in examples.items()}
        for name, step in itertools.product(examples, STEPS):
            if at(examples | {name: examples[name] + step}) != _moved(base, {name: step}, slopes):
                return None
        together = {name: STEPS[i % len(STEPS)] for i, name in enumerate(examples)}
        if at({name: examples[name] + step for name, step in together.items()}) != _moved(base, together, slopes):
            return None
    except (NpuforgeError, ValueError, IndexError, TypeError, AssertionError):
        return None
    return _moved(base, {name: sizes[name] - examples[name] for name in examples}, slopes)


def _difference(after: list[tuple[Any, ...]], before: list[tuple[Any, ...]]) -> list[list[int]]:
    if [len(s) for s in after] != [len(s) for s in before]:
        raise ValueError("the number of dimensions depends on a size")
    return [
        [0 if a is None or b is None else int(a) - int(b) for a, b in zip(x, y, strict=True)]
        for x, y in zip(after, before, strict=True)
    ]


def _moved(
    base: list[tuple[Any, ...]], steps: dict[str, Any], slopes: dict[str, list[list[int]]]
) -> list[tuple[Any, ...]]:
    found = []
    for i, shape in enumerate(base):
        dims = list(shape)
        for name, step in steps.items():
            for j, slope in enumerate(slopes[name][i]):
                if slope:
                    dims[j] = dims[j] + slope * step
        found.append(tuple(dims))
    return found
