"""Damaged models: whatever stands in the file, the importer answers with a valid graph or with one line of a typed error that is the user's to act on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from fuzz import damaged, seeds

from npuforge.compile.ir.errors import ModelError, NpuforgeError, VerifyError
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.verify import verify

CASES = 10_000
SAMPLE = 150


def outcome(path: Path) -> str:
    """`accepted`, or the type of the refusal; anything else is an assertion that names what went wrong."""
    try:
        graph = import_onnx(path).graph
        verify(graph, "import")
        graph = fuse(fold(graph))
        verify(graph, "fuse")
        verify(partition(graph), "partition")
    except VerifyError as error:
        raise AssertionError(f"a fault of ours: {error}") from error
    except NpuforgeError as error:
        text = str(error)
        assert text.strip() and "\n" not in text and len(text) < 1000, text
        return type(error).__name__
    return "accepted"


def run(tmp_path: Path, first: int, last: int) -> Counter[str]:
    """Outcomes of the cases; the failing case's number is in the assertion."""
    models, path, found = seeds(), tmp_path / "net.onnx", Counter[str]()
    for number in range(first, last):
        path.write_bytes(damaged(models, number))
        try:
            found[outcome(path)] += 1
        except Exception as error:
            raise AssertionError(f"case {number}: {type(error).__name__}: {error}") from error
    return found


def test_the_undamaged_models_are_accepted(tmp_path: Path) -> None:
    for number, model in enumerate(seeds()):
        path = tmp_path / f"{number}.onnx"
        onnx.save(model, path)
        assert outcome(path) == "accepted"
        imported = import_onnx(path)
        graph = fuse(fold(imported.graph))
        feeds = {"x": np.zeros(graph.tensors["x"].shape, np.float32)}
        assert np.isfinite(GraphExecutor(graph, providers=["CPUExecutionProvider"], threads=1).run(feeds)["y"]).all()


def test_a_sample(tmp_path: Path) -> None:
    found = run(tmp_path, 0, SAMPLE)
    assert found["accepted"] > SAMPLE // 20 and found["ModelError"] > SAMPLE // 4  # both ways are met


def test_a_model_that_crashes_onnx_converter_is_refused(tmp_path: Path) -> None:
    """Case 2531: its operator set became 1, and ONNX's converter ends the process on it."""
    path = tmp_path / "net.onnx"
    path.write_bytes(damaged(seeds(), 2531))
    with pytest.raises(
        ModelError, match=r"operator set 1 is older than 7 and ONNX's converter cannot raise it \(it crashes\); export"
    ):
        import_onnx(path)


def test_an_axis_beyond_all_dimensions_does_not_fill_the_memory(tmp_path: Path) -> None:
    """Case 7160: Concat of constants along axis 2^31; ONNX's evaluator makes that many dimensions."""
    path = tmp_path / "net.onnx"
    path.write_bytes(damaged(seeds(), 7160))
    with pytest.raises(
        ModelError, match=r"\(Concat\).*attribute axis is \[2147483648\], no tensor has so many dimensions; export"
    ):
        import_onnx(path)


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand(tmp_path: Path, part: int) -> None:
    step = CASES // 10
    assert sum(run(tmp_path, part * step, (part + 1) * step).values()) == step
