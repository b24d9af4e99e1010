"""The optimiser of NPU-DSL programs: fewer operations with the same meaning. In int8 the tracer already joins what one instruction can do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from npuforge.hw_kernels.dsl.tile import Dtype
from npuforge.hw_kernels.dsl.trace import Operation, Trace

STAGED = ("affine", "add", "sub", "mul", "depthwise", "channel_sum")  # instructions with an output stage


def optimise(trace: Trace) -> Trace:
    """The same program with fewer instructions: equal operations once, unused ones not at all, multiplications, additions and activations moved
    into the operation that makes their operand. What is moved is not rounded to bf16 and not stored in between."""
    current = trace
    for _ in range(len(trace.operations) + 1):
        changed = _fuse_one(_without_unused(_without_repeats(current)))
        if changed is None:
            break
        current = changed
    return _without_unused(_without_repeats(current))


def _rebuilt(trace: Trace, operations: list[Operation], kept: list[int], renamed: dict[int, int]) -> Trace:
    """The operations `kept`, with values renamed to what stands for them."""
    number = {old: new for new, old in enumerate(kept)}

    def name(value: int) -> int:
        while value in renamed:
            value = renamed[value]
        return number[value]

    result = [
        o if o.kind == "input" else replace(o, a=name(o.a), b=name(o.b) if o.b >= 0 else -1)
        for o in (operations[i] for i in kept)
    ]
    return Trace(trace.name, trace.inputs, result, name(trace.result), trace.dtype)


def _without_repeats(trace: Trace) -> Trace:
    seen: dict[Any, int] = {}
    renamed: dict[int, int] = {}
    kept = []
    for i, o in enumerate(trace.operations):
        a, b = renamed.get(o.a, o.a), renamed.get(o.b, o.b)
        key = repr(replace(o, a=a, b=b, where="")) if o.kind != "input" else ("input", o.a)
        if key in seen:
            renamed[i] = seen[key]
        else:
            seen[key] = i
            kept.append(i)
    return _rebuilt(trace, trace.operations, kept, renamed)


def _without_unused(trace: Trace) -> Trace:
    needed = {trace.result}
    for i in range(len(trace.operations) - 1, -1, -1):
        if i in needed:
            needed.update(trace.operations[i].reads)
    kept = [i for i, o in enumerate(trace.operations) if i in needed or o.kind == "input"]
    return _rebuilt(trace, trace.operations, kept, {})


def _fuse_one(trace: Trace) -> Trace | None:
    """One affine operation moved into its operand's, None if none can be."""
    if trace.dtype != Dtype.BF16:
        return None
    operations = list(trace.operations)
    for i, o in enumerate(operations):
        if o.kind != "affine" or o.a < 0:
            continue
        source = operations[o.a]
        readers = sum(p.reads.count(o.a) for p in operations) + (trace.result == o.a)
        if source.kind not in STAGED or readers != 1 or source.activation.kind != "none":
            continue
        if source.kind != "affine" and o.factor != 1.0:
            continue
        factor, bias = source.factor * o.factor, source.bias * o.factor + o.bias
        operations[o.a] = replace(source, factor=factor, bias=bias, activation=o.activation)
        kept = [k for k in range(len(operations)) if k != i]
        return _rebuilt(trace, operations, kept, {i: o.a})
    return None
