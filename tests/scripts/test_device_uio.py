"""`--device uio --board board.json` and `npuforge board`, on the stand-in for a board (tests/board_runtime/board)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from board_stand_in import ARCH, StandIn, running
from command_line import CommandLine

from npuforge.board_runtime.session import Session
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.pipeline import Options, compile_model
from npuforge.hw_kernels.arch import load

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
UIO = ("--device", "uio", "--board")


@pytest.fixture
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """board.json of a stand-in that runs."""
    with running(tmp_path_factory.mktemp("board")) as stand_in:
        yield stand_in.board


def test_run(command: CommandLine, board: Path) -> None:
    """The same detections and tensors as on `sim`."""
    on_board = command("run", "build", "images", *UIO, board, "--tensors", "uio.npz", "--json")
    on_sim = command("run", "build", "images", "--tensors", "sim.npz", "--json")
    assert on_board.code == on_sim.code == 0 and on_board.out == on_sim.out
    found, expected = np.load("uio.npz"), np.load("sim.npz")
    assert found.files == expected.files
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected.files)


def test_check(command: CommandLine, board: Path) -> None:
    result = command("run", "build", "--check", *UIO, board)
    assert result.code == 0 and "as expected" in result.out


def test_compare(command: CommandLine, board: Path) -> None:
    """Only what leaves the NPU, and the command says so; sim compares every layer."""
    result = command("compare", "build", "images", *UIO, board, "--json", "--report", "report.html")
    assert result.code == 0
    notice = "notice: device uio keeps no layer's output: only what leaves the NPU is compared with the integer graph, bit for bit"
    assert result.err.splitlines()[-1] == notice
    on_board = json.loads(result.out)["device_equality"]
    on_sim = json.loads(command("compare", "build", "images", "--json").out)["device_equality"]
    assert on_board["values_differing"] == 0
    assert 0 < on_board["values_compared"] < on_sim["values_compared"]
    assert notice.removeprefix("notice: ") in Path("report.html").read_text().replace("&#39;", "'")


def test_evaluate_and_bench(command: CommandLine, board: Path) -> None:
    given = ("evaluate", "build", "--images", "images", "--truth", "truth.json", "--columns", "device", "--json")
    on_board, on_sim = command(*given, *UIO, board), command(*given)
    assert on_board.code == 0 and on_board.out == on_sim.out
    result = command("bench", "build", *UIO, board, "--runs", "3", "--json")
    assert result.code == 0 and json.loads(result.out)["device"] == "uio"


def test_refusals(command: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("run", "compare"):
        given = (name, "build", "images", "--device", "uio")
        command.refused(2, ("--device uio: give the description of the board, --board board.json",), *given)
    command.refused(2, ("--board x.json: belongs to --device uio",), "run", "build", "images", "--board", "x.json")
    command.refused(
        1, ("none.json: cannot be read", "npuforge board writes one"), "run", "build", "images", *UIO, "none.json"
    )
    stand_in = StandIn(tmp_path_factory.mktemp("still"))
    stand_in.write(arch=load("nf-b1024").to_json())
    found = ("compiled for another arch", "name expected", "recompile with --arch")
    command.refused(1, found, "run", "build", "images", *UIO, stand_in.board)
    stand_in.write(timeout_ms=50)
    command.refused(1, ("device uio: the hardware is not idle",), "run", "build", "images", *UIO, stand_in.board)


def test_board(command: CommandLine) -> None:
    given = ("board", "xnpu_top_hw.h", "--arch", ARCH, "--uio", "/dev/uio4", "--interrupt", "--timeout-ms", "500")
    printed = command(*given)
    assert printed.code == 0 and command(*given, "-o", "board.json").out == "written: board.json\n"
    found = json.loads(Path("board.json").read_text())
    assert found == json.loads(printed.out)
    assert found["uio"] == {"node": "/dev/uio4", "sysfs": "/sys/class/uio/uio4", "interrupt": "/dev/uio4"}
    assert found["registers"]["status"] == [80, 84, 88, 92] and found["timeout_ms"] == 500
    command.refused(2, ("nope",), "board", "xnpu_top_hw.h", "--arch", "nope")
    command.refused(2, ("cache on: expected one of sync, off",), *given, "--cache", "on")
    command.refused(1, ("net.yaml: no register is defined in it",), "board", "net.yaml", "--arch", ARCH)
    command.refused(1, ("build: is a folder",), *given, "-o", "build")


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not (DATA / "models").is_dir(), reason="needs ../shared/data (docs/data.md)")
@pytest.mark.parametrize("interrupt", [False, True], ids=["polled", "interrupt"])
def test_real_network(interrupt: bool, tmp_path: Path) -> None:
    """yolo_fastest_1.1 on real images: every bit of every output, and of what leaves the NPU, as on `sim`."""
    images = sorted((DATA / "tiny_coco" / "train2017").glob("*.jpg"))[:2]
    record = load_preprocess("yolo_fastest_1.1")
    model = DATA / "models" / "yolo_fastest_1.1.onnx"
    compile_model(Options(model, load(ARCH), tmp_path / "build", preprocess=record, calibration=images))
    simulator = Session(tmp_path / "build")
    random = np.random.default_rng(0)
    with running(tmp_path / "board", interrupt=interrupt) as stand_in:
        session = Session(tmp_path / "build", device="uio", board=stand_in.board)
        for _ in range(3):
            x = random.uniform(0, 255, simulator.inputs[0].shape).astype(np.float32)
            (expected, layers), (found, leaving) = simulator.trace([x]), session.trace([x])
            assert {name: value.tobytes() for name, value in found.items()} == {
                name: value.tobytes() for name, value in expected.items()
            }
            by_tensor = {record.tensor: record for record in layers}
            assert leaving and all(r.data.tobytes() == by_tensor[r.tensor].data.tobytes() for r in leaving)
