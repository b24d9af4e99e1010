"""Changed files of one operator of every built-in type: a list of faults, never anything else. What we accept, the vendor's library takes where it is installed."""

from __future__ import annotations

import importlib.util
import math
import random
from pathlib import Path

import pytest
from test_xir_rules import vendor_statuses
from xir_good_ops import GOOD, model_of

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import Attr, XModel, XOp, to_message
from npuforge.compile.xir.reader import check_structure
from npuforge.compile.xir.shapes import shape_problems
from npuforge.compile.xir.validate import VALUES, problems

INTEGERS = (0, -1, 1, 2, 3, 4, 5, 7, -2, -4, -5, 100, (1 << 31) - 1, -(1 << 31))
NUMBERS = (0.0, -1.0, 0.3, 1.5, 1e9, 1e30, float("inf"), float("nan"))
TEXTS = (
    "",
    "X",
    "FLOAT32",
    "INT0",
    "FLOAT99999999999",
    *(v for rows in VALUES.values() for some in rows.values() for v in some),
)
OTHERS = (
    Attr("int64", 3),
    Attr("int64_vec", [1]),
    Attr("double", 1.0),
    Attr("string", "FLOOR"),
    Attr("int32", 2),
    Attr("int32_vec", [2, 2]),
)


def other(rng: random.Random, attr: Attr) -> Attr:
    """Another value, seldom another wire type."""
    if rng.random() < 0.1:
        return rng.choice(OTHERS)
    if attr.kind.endswith("_vec"):
        values, pool = list(attr.value), INTEGERS if attr.kind == "int32_vec" else NUMBERS
        kind = rng.random()
        if values and kind < 0.6:
            values[rng.randrange(len(values))] = rng.choice(pool)
        elif values and kind < 0.8:
            values.pop()
        else:
            values.append(rng.choice(pool))
        return Attr(attr.kind, values)
    pools = {"int32": INTEGERS, "float": NUMBERS, "double": NUMBERS, "bool": (False, True), "string": TEXTS}
    return Attr(attr.kind, rng.choice(pools[attr.kind])) if attr.kind in pools else attr


def reshape_source(rng: random.Random, op: XOp) -> None:
    """Another shape or type for a source, in its attributes and its tensor alike; constants of any bytes, or none."""
    shape = list(op.tensor.shape)
    kind = rng.random()
    if kind < 0.4:
        shape[rng.randrange(len(shape))] = rng.choice((1, 2, 3, 4, 5, 6, 8, 12, (1 << 31) - 1))
    elif kind < 0.6:
        shape.append(rng.choice((1, 2, 4)))
    elif kind < 0.8 and len(shape) > 1:
        shape.pop(rng.randrange(len(shape)))
    elif kind < 0.9:
        op.tensor.attrs["shape_info"] = Attr("int32_vec", [rng.choice(INTEGERS) for _ in range(rng.randrange(5))])
    else:
        op.tensor.data_type, op.tensor.bit_width = rng.choice(
            (("INT", 32), ("FLOAT", 32), ("XINT", 8), ("INT", 64), ("BFLOAT", 16))
        )
    op.tensor.shape, op.attrs["shape"] = shape, Attr("int32_vec", list(shape))
    if "data" in op.attrs:
        size = math.prod(shape) * op.tensor.bit_width // 8
        empty = size > 10_000 or rng.random() < 0.2
        op.attrs["data"] = Attr("bytes", b"" if empty else bytes(rng.choice((0, 0, 1, 2, 255)) for _ in range(size)))


def change(rng: random.Random, model: XModel) -> None:
    """One change of the operator or of what it reads."""
    op, sources = model.ops[-1], model.ops[:-1]
    kind = rng.random()
    if kind < 0.45 and op.attrs:
        name = rng.choice(sorted(op.attrs))
        op.attrs[name] = other(rng, op.attrs[name])
    elif kind < 0.5 and op.attrs:
        del op.attrs[rng.choice(sorted(op.attrs))]
    elif kind < 0.85 and sources:
        reshape_source(rng, rng.choice(sources))
    elif op.args and sources:
        producers = rng.choice(op.args)[1]
        if producers and rng.random() < 0.5:
            producers[rng.randrange(len(producers))] = rng.choice(sources).name
        elif producers and rng.random() < 0.5:
            producers.pop()
        else:
            producers.append(rng.choice(sources).name)


def check(rounds: int, seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    accepted: list[str] = []
    for number in range(rounds):
        model = model_of(rng.choice(GOOD))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            change(rng, model)
        try:
            check_structure(model)
        except FormatError:
            continue
        found = problems(model)
        assert all(line.startswith("op '") and "\n" not in line for line in found)
        if not found:
            assert all("its tensor has shape" in line for line in shape_problems(model))
            path = folder / f"{number}.xmodel"
            path.write_bytes(to_message(model).SerializeToString())
            accepted.append(str(path))
    print(f"{rounds} files, accepted: {len(accepted)}")
    assert rounds / 10 < len(accepted) < rounds * 0.9
    if importlib.util.find_spec("xir") is not None:
        statuses = vendor_statuses(accepted)
        assert {name: status for name, status in statuses.items() if status} == {}


def test_changed_operators(tmp_path: Path) -> None:
    check(1500, 0, tmp_path)


@pytest.mark.full
def test_twenty_thousand_changed_operators(tmp_path: Path) -> None:
    check(20_000, 1, tmp_path)
