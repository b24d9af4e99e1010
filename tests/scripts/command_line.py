"""Helpers of the command-line tests: what one call gave, folders as dictionaries, tiny ONNX networks written by hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.scripts import cli

HEAD = "width: 16\nheight: 16\nhead: {kind: fastestdet}\nclass_names: [nut, bolt]\n"
GOOD = ("net.onnx", "--calib", "images", "--preprocess", "net.yaml", "-o", "build")  # compiles well
_OTHER_LINES = re.compile(
    r"(notice: |(\[\d+/\d+\] )?[a-z][a-z_ ]*(: \d+/\d+( [a-z]+)?)?$)"
)  # notices and plain progress


@dataclass(frozen=True)
class Result:
    """What one call gave."""

    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The one `error:` line; everything before it is progress or a notice."""
        *others, last = self.err.splitlines() or [""]
        assert last.startswith("error: "), self
        assert len(last) > 30, self  # a word is no message
        for line in others:
            assert _OTHER_LINES.match(line), f"unexpected on standard error: {line!r}"
        assert "Traceback" not in self.err and "fault of npuforge" not in last, self.err
        return last


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file (its bytes), folder and link (None) below `folder`."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() and os.access(p, os.R_OK) else None
        for p in folder.rglob("*")
    }


class CommandLine:
    """Runs `npuforge` in this process from a working folder, and compares the folder before and after."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture

    def __call__(self, *arguments: object) -> Result:
        """Exit code and what went to standard output and standard error, native libraries' output included."""
        self._capture.readouterr()
        with pytest.raises(SystemExit) as done:
            cli.main([str(a) for a in arguments])
        captured = self._capture.readouterr()
        assert isinstance(done.value.code, int)
        return Result(done.value.code, captured.out, captured.err)

    def refused(self, code: int, words: tuple[str, ...], *arguments: object) -> Result:
        """The command ends with `code` and one `error:` line that has all `words`; no file appears, changes or goes."""
        before = tree(self.folder)
        result = self(*arguments)
        after = tree(self.folder)
        assert result.code == code, result
        line = result.error_line
        for word in words:
            assert word in line, f"{word!r} is not in {line!r}"
        assert after.keys() == before.keys(), after.keys() ^ before.keys()
        assert after == before
        return result


def subprocess_command(arguments: Sequence[object], cwd: Path, prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
    """`npuforge` in a process of its own."""
    command = [*prefix, sys.executable, "-m", "npuforge.scripts.cli", *(str(a) for a in arguments)]
    source = str(Path(__file__).resolve().parents[2] / "src")
    environment = os.environ | {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def finish(process: subprocess.Popen[str], already: str = "") -> Result:
    """Waits for the process. `already`: what was read from its standard error."""
    out, err = process.communicate(timeout=120)
    return Result(process.returncode, out, already + err)


def save_model(model: onnx.ModelProto, path: Path) -> Path:
    """Writes the file."""
    onnx.save(model, path)
    return path


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any) -> onnx.NodeProto:
    """An ONNX node named after its operator."""
    return helper.make_node(op, list(inputs), list(outputs), name=name or op.lower(), **attributes)


def make_model(
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    shape: Sequence[int | str] = (1, 3, 16, 16),
    output: str | Sequence[str] = "y",
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model with the input x and one output, or several."""
    outputs = [output] if isinstance(output, str) else output
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info("x", dtype, list(shape))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def tiny_model(
    middle: Sequence[onnx.NodeProto] = (),
    constants: dict[str, np.ndarray] | None = None,
    tail: Sequence[onnx.NodeProto] = (),
    shape: Sequence[int | str] = (1, 3, 16, 16),
    weight: float | None = None,
    seed: int = 0,
) -> onnx.ModelProto:
    """Conv 3→8 with stride 2, Relu `r` [, `middle`: `r` → `m`], Conv 8→7 `h` [, `tail`: `h` → `t`], Sigmoid `y`: a FastestDet map."""
    random = np.random.default_rng(seed)
    w1 = (random.standard_normal((8, 3, 3, 3)) * 0.3).astype(np.float32)
    if weight is not None:
        w1[2, 1, 0, 0] = weight
    values = {
        "w1": w1,
        "b1": np.zeros(8, np.float32),
        "w2": (random.standard_normal((7, 8, 1, 1)) * 0.5).astype(np.float32),
        "b2": np.zeros(7, np.float32),
    }
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c"], "stem", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        *middle,
        node("Conv", ["m" if middle else "r", "w2", "b2"], ["h"], "head", kernel_shape=[1, 1]),
        *tail,
        node("Sigmoid", ["t" if tail else "h"], ["y"]),
    ]
    return make_model(nodes, values | (constants or {}), shape)
