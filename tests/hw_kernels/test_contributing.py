"""The worked example of CONTRIBUTING.md is real: its Python registers and computes, its C++ compiles against the runtime's headers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from contract import check_gradient

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.steps.partition import failed, partition
from npuforge.hw_kernels import operator

ROOT = Path(__file__).resolve().parents[2]


def _block(language: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert len(found) == 1, f"expected one {language} block in CONTRIBUTING.md"
    return str(found[0])


def test_python_part_registers_and_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_REGISTERED", dict(operator.registry()))
    exec(compile(_block("python"), "CONTRIBUTING.md", "exec"), {"__name__": "example"})
    op = operator._REGISTERED["com.example::Square"]
    node = Node("n", "com.example::Square", ["x"], ["y"])
    x = np.array([[[[-1.5, 0.0, 3.0]]]])
    np.testing.assert_array_equal(op.reference(node, [x])[0], [[[[2.25, 0.0, 9.0]]]])
    assert op.infer(node, [(1, 3, 4, 5)]) == [(1, 3, 4, 5)]
    np.testing.assert_array_equal(op.gradient(node, [x], [np.full_like(x, 10.0)])[0], 20 * x)
    assert check_gradient(op, node, [x]) == 1
    graph = Graph("g", [node], {}, {}, ["x"], ["y"])
    assert op.failed_constraint(node, graph) == "Square has no NPU program yet: it runs on the CPU partition"
    reason = "the NPU has no operator com.example::Square"  # what the page says inspect shows until step 3, and the end until step 2
    assert failed(node, graph) == reason and f"`{reason}`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    with pytest.raises(UnsupportedError, match="can run nowhere"):
        partition(graph)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_cpp_part_compiles(tmp_path: Path) -> None:
    header = tmp_path / "cpu.hpp"
    header.write_text(_block("cpp"), encoding="utf-8")
    source = tmp_path / "main.cpp"
    source.write_text(
        '#include "cpu.hpp"\nvoid use(npuforge::cpu::Registry& r) { npuforge::cpu::register_square(r); }\n'
    )
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command += ["-I", str(ROOT / "board_runtime" / "include"), str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
