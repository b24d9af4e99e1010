"""A bf16 build folder by command: compiled without calibration, run through Session and the VART interface, compared, refused where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.session import Session
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.hw_kernels.arch import load
from npuforge.scripts import cli
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.scenes.write import write_folder

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "scripts" / "demo_data" / "demo.onnx"
COMPILE = ["compile", str(DEMO), "--preprocess", str(DEMO.with_suffix(".yaml")), "--precision", "bf16"]


def main(arguments: list[str]) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as done:
        cli.main(arguments)
    return int(done.value.code or 0)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bf16") / "build"
    assert main([*COMPILE, "--arch", "nf-b1024-bf16", "-o", str(folder)]) == 0
    return folder


def tensor(seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).random((1, 3, 256, 256), np.float32)


def test_npu_partition_through_vart_gives_the_numpy_values(build: Path) -> None:
    graph = xir.Graph.deserialize(str(build / "model.xmodel"))
    npu = next(
        s
        for s in graph.get_root_subgraph().toposort_child_subgraph()
        if s.has_attr("device") and s.get_attr("device") == "DPU"
    )
    runner = vart.Runner.create_runner(npu, "run")
    given = tensor()
    inputs = [np.ascontiguousarray(given.transpose(0, 2, 3, 1))]
    outputs = [np.zeros(t.dims, np.float32) for t in runner.get_output_tensors()]
    assert {t.dtype for t in (*runner.get_input_tensors(), *runner.get_output_tensors())} == {"bfloat16"}
    assert runner.wait(runner.execute_async(inputs, outputs)) == 0
    opened = open_build(build)
    names = [t.name for t in runner.get_output_tensors()]
    graph_input = opened.qgraph.graph.inputs[0]
    _, floats = LaneExecutor(opened.qgraph, load("nf-b1024-bf16")).run_all({graph_input: given}, names)
    for name, value in zip(names, outputs, strict=True):
        assert np.array_equal(value, floats[name].transpose(0, 2, 3, 1)), name


def test_session_refuses_bytes_where_the_network_computes_in_bf16(build: Path) -> None:
    session = Session(build)
    name = session.inputs[0].name
    with pytest.raises(Exception, match="preprocessed values here, not pixels"):
        session.run({name: np.zeros((1, 256, 256, 3), np.uint8)})


def test_compare_has_no_differing_value_and_keeps_the_gate(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenes = write_folder(tmp_path / "scenes", 1, 3).parent / "images"
    report = tmp_path / "report.html"
    code = main(["compare", str(build), str(scenes), "--report", str(report), "--max-mean-error", "2e-3"])
    text = capsys.readouterr().out
    assert code == 0 and ": 0 of " in text and "--max-mean-error 0.002" in text, text
    layers = [y for y in json.loads(report.with_suffix(".json").read_text())["layers"] if y["alone"]]
    worst = max(y["alone"]["mean_error_share"] for y in layers)
    assert main(["compare", str(build), str(scenes), "--max-mean-error", str(worst / 2)]) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arch", "nf-b4096"], "arch nf-b4096 has no feature bf16; choose --arch nf-b1024-bf16 or nf-b4096-bf16"),
        (["--arch", "nf-b4096-bf16", "--mode", "pow2"], "--mode pow2: belongs to int8"),
    ],
)
def test_choices_that_do_not_go_together(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMPILE, *arguments, "-o", str(tmp_path / "b")]) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "b").exists()


def test_unknown_precision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(DEMO), "--precision", "fp8", "-o", str(tmp_path / "b")]) == 2
    assert "--precision fp8: expected one of int8, bf16" in capsys.readouterr().err
