"""The child that network outputs leave by, of files made by hand: what it hands on in other types, and what it refuses. Right values are written out."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from npuforge.board_runtime.output_subgraph import OutputRunner
from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import Attr, XModel, XOp, XSubgraph, XTensor


def runner(*ops: XOp) -> OutputRunner:
    """Of a child with all ops but the inputs."""
    inside = XSubgraph("subgraph_outputs", {}, [op.name for op in ops if op.type not in ("data", "data-fix")], [])
    return OutputRunner(XModel("net", list(ops), XSubgraph("root", {}, [], [inside]), {}), inside)


def op(kind: str, name: str, dtype: tuple[str, int], *inputs: str, **attrs: Attr) -> XOp:
    args = [("input", list(inputs))] if inputs else []
    return XOp(name, kind, XTensor(name, [1, 3], *dtype), args, attrs)


def run(runner: OutputRunner, given: list[np.ndarray], dtype: Any) -> tuple[np.ndarray, str]:
    """The first output and the message."""
    wanted = [np.zeros(spec["dims"], dtype) for spec in runner.get_output_tensors()]
    job, status = runner.execute_async(given, wanted)
    assert status == (1 if runner.message(job) else 0)
    return wanted[0], runner.message(job)


INT64, FLOAT, XINT8 = ("INT", 64), ("FLOAT", 32), ("XINT", 8)


def test_integers_in_their_type_and_as_float32() -> None:
    made = runner(op("data", "q", INT64), op("identity", "r", INT64, "q"))
    values = np.array([[-5, 1 << 24, 3]])
    for given in (values, values.astype(np.float32)):
        for dtype in (np.int64, np.float32):
            found, message = run(made, [given], dtype)
            assert message == "" and found.dtype == dtype
            np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf, 2.0**63])
def test_what_an_integer_does_not_hold(value: float) -> None:
    made = runner(op("data", "q", INT64), op("identity", "r", INT64, "q"))
    _, message = run(made, [np.array([[0, value, 0]], np.float32)], np.int64)
    assert re.fullmatch(r"input 'q': element 1 is \S+, expected a whole number that int64 holds", message)


def test_what_float32_does_not_hold() -> None:
    made = runner(op("data", "q", INT64), op("identity", "r", INT64, "q"))
    for value in ((1 << 24) + 1, (1 << 63) - 1):
        _, message = run(made, [np.array([[0, 1, value]])], np.float32)
        assert message == f"output 'r': element 2 is {value}, which float32 does not hold; give a buffer of type int64"
    _, message = run(made, [np.zeros((1, 3), np.int64)], np.int32)
    assert message == "output 'r': expected int64 or float32 [1, 3], found int32 [1, 3]"


def test_constants() -> None:
    values = np.array([[1.5, -2.0, 0.0]], np.float32)
    made = runner(op("const", "k", FLOAT, data=Attr("bytes", values.tobytes())), op("identity", "o", FLOAT, "k"))
    np.testing.assert_array_equal(run(made, [], np.float32)[0], values)
    with pytest.raises(FormatError, match=r"op 'k' \(const\): expected data for FLOAT32 \[1, 3\]; compile the network"):
        runner(op("const", "k", FLOAT, data=Attr("bytes", bytes(11))), op("identity", "o", FLOAT, "k"))


@pytest.mark.parametrize("fix_point", [65, -65, 1 << 30, -(1 << 30)])
def test_a_fix_point_beyond_all_floats(fix_point: int) -> None:
    source, attr = op("data-fix", "x", XINT8), Attr("int32", fix_point)
    with pytest.raises(FormatError, match=f"fix_point {fix_point}; expected -64 to 64; compile the network again"):
        runner(source, op("fix2float", "f", FLOAT, "x", fix_point=attr))
    source.tensor.attrs["fix_point"] = attr
    with pytest.raises(FormatError, match=f"tensor 'x': fix_point {fix_point}; expected -64 to 64"):
        runner(source, op("fix2float", "f", FLOAT, "x", fix_point=Attr("int32", 3)))
