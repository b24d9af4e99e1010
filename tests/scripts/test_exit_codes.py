"""docs/exit-codes.md as a table: 1 for files, models and places, 2 for the command line itself, 3 for gates. One `error:` line, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from command_line import GOOD, CommandLine, tiny_model

COMPILE = ("compile", *GOOD)
RUN = ("run", "build", "images")
COMPARE = ("compare", "build", "images")
EVALUATE = ("evaluate", "build", "--images", "images", "--truth", "truth.json")
RECORD = ("reference", "record", "net.onnx", "images", "-o", "r.npz")


def with_value(arguments: tuple[str, ...], option: str, value: str) -> tuple[str, ...]:
    """The same call with another value of one option."""
    position = arguments.index(option) + 1
    return (*arguments[:position], value, *arguments[position + 1 :])


ERRORS = [
    (("compile", "nowhere.onnx", *GOOD[1:]), "nowhere.onnx: no such file"),
    (("compile", "images", *GOOD[1:]), "images is a directory"),
    (("inspect", "nowhere.onnx"), "nowhere.onnx: no such file"),
    (("inspect", "net.yaml"), "not an ONNX model"),
    (with_value(COMPILE, "--calib", "nowhere"), "nowhere: no such image"),
    (with_value(COMPILE, "--preprocess", "nowhere.yaml"), "nowhere.yaml: no such preprocessing file"),
    (with_value(COMPILE, "--preprocess", "truth.json"), "truth.json: unknown key"),
    (with_value(COMPILE, "-o", "net.yaml"), "net.yaml: cannot be written"),
    ((*COMPILE, "--dump-steps", "net.yaml/x"), "another --dump-steps"),
    ((*COMPILE, "--arch", "nowhere.json"), "nowhere.json"),
    ((*COMPILE, "--arch", "truth.json"), "truth.json"),  # a list, no object of parameters
    (("quantize", *GOOD[:-1], "images"), "images: is a folder; give the name of a file with -o"),
    (("run", "nowhere", "images"), "nowhere/manifest.json: cannot be read"),
    (("run", "net.onnx", "images"), "net.onnx: a file without manifest.json beside it"),
    (("run", "build", "nowhere.png"), "nowhere.png: no such image"),
    ((*RUN, "--draw", "net.yaml"), "choose another place with --draw"),
    ((*RUN, "--tensors", "net.yaml/t.npz"), "choose another place with --tensors"),
    ((*RUN, "--profile", "images"), "with --profile"),
    ((*COMPARE, "--report", "net.yaml/r.html"), "choose another place with --report"),
    ((*COMPARE, "--report", "images"), "images: is a folder; give the name of a file with --report"),
    ((*COMPARE, "--reference", "nowhere.npz"), "nowhere.npz: no such file"),
    ((*COMPARE, "--truth", "nowhere.json"), "nowhere.json"),
    (("evaluate", "nowhere", *EVALUATE[2:]), "nowhere/manifest.json"),
    (with_value(EVALUATE, "--images", "nowhere"), "nowhere"),
    (with_value(EVALUATE, "--truth", "net.yaml"), "net.yaml"),
    (with_value(RECORD, "-o", "net.yaml/r.npz"), "choose another place with -o"),
    (("report", "nowhere"), "nowhere/manifest.json"),
    (("report", "build", "-o", "net.yaml/r.html"), "choose another place with -o"),
    (("bench", "nowhere"), "nowhere/manifest.json"),
    (("disasm", "nowhere.bin"), "nowhere.bin"),
    (("arch", "nowhere.json"), "nowhere.json"),
]
USAGE = [
    ((*COMPILE, "--arch", "nope"), "known: nf-b1024, nf-b1024-bf16, nf-b4096, nf-b4096-bf16"),
    (("inspect", "net.onnx", "--arch", "nope"), "known: nf-b1024, nf-b1024-bf16, nf-b4096, nf-b4096-bf16"),
    (("arch", "nope"), "known: nf-b1024, nf-b1024-bf16, nf-b4096, nf-b4096-bf16"),
    ((*RUN, "--arch", "nope"), "known: nf-b1024, nf-b1024-bf16, nf-b4096, nf-b4096-bf16"),
    (with_value(COMPILE, "--preprocess", "nope"), "built-in ones: blazeface"),
    ((*COMPILE, "--mode", "rough"), "--mode rough: expected one of"),
    ((*COMPILE, "--calibrator", "guess"), "--calibrator guess: expected one of"),
    ((*COMPILE, "--shape", "z=1x3x16x16"), "--shape names the input 'z'"),
    ((*COMPILE, "--shape", "1x3xa"), "--shape '1x3xa': expected"),
    ((*COMPILE, "--alpha", "2"), "--alpha 2: expected at most 1"),
    ((*COMPILE, "--calib-count", "-1"), "--calib-count -1: expected at least 0"),
    ((*RUN, "--threads", "0"), "--threads 0: expected at least 1; see `npuforge run --help`"),
    ((*RUN, "--threads", "two"), "--threads two: expected a whole number"),
    ((*RUN, "--score", "high"), "--score high: expected a number"),
    ((*RUN, "--device", "fpga9"), "--device fpga9: this installation has"),
    ((*COMPARE, "--threads", "0"), "--threads 0: expected at least 1"),
    ((*COMPARE, "--max-map-drop", "1"), "give them with --truth"),
    ((*COMPARE, "--report", "r.json"), "--report r.json: expected the name of the page, r.html"),
    ((*EVALUATE, "--columns", "gpu"), "--columns gpu: expected some of"),
    ((*EVALUATE, "--skip", "9"), "--skip 9: no image is left"),
    (("bench", "build", "--peer", "abacus"), "--peer abacus: expected one of"),
    (("bench", "build", "--device", "fpga9"), "--device fpga9"),
    (("disasm",), "Missing argument"),
    (("ops", "--color"), "No such option"),
]


@pytest.mark.parametrize(("arguments", "words"), ERRORS, ids=lambda a: " ".join(a) if isinstance(a, tuple) else None)
def test_error(command: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    command.refused(1, (words,), *arguments)


@pytest.mark.parametrize(("arguments", "words"), USAGE, ids=lambda a: " ".join(a) if isinstance(a, tuple) else None)
def test_usage(command: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    assert "Input should" not in command.refused(2, (words,), *arguments).err


def test_draw_without_a_head(command: CommandLine) -> None:
    """The build, not the command line, lacks something."""
    Path("net.yaml").write_text("width: 16\nheight: 16\n")
    assert command(*with_value(COMPILE, "-o", "plain")).code == 0
    command.refused(1, ("--draw needs a detection head",), "run", "plain", "images", "--draw", "d")
    command.refused(1, ("--truth needs a detection head",), "compare", "plain", "images", "--truth", "truth.json")
    command.refused(1, ("declares no detection head",), "evaluate", "plain", *EVALUATE[2:])


def test_gate(command: CommandLine) -> None:
    result = command(*COMPARE, "--min-cosine", "1", "--report", "r.html")
    assert result.code == 3 and Path("r.html").is_file() and Path("r.json").is_file()


def test_report_whose_json_is_in_the_way(command: CommandLine) -> None:
    """The second of the two files is looked at before the work as well."""
    Path("r.json").mkdir()
    result = command.refused(1, ("r.json: is a folder",), *COMPARE, "--report", "r.html")
    assert "compare:" not in result.err


def test_recording_without_an_image(command: CommandLine) -> None:
    """Refused before the first image is run."""
    assert command(*RECORD, "--preprocess", "net.yaml").code == 0
    Path("images/c.png").write_bytes(Path("images/a.png").read_bytes())
    result = command.refused(1, ("r.npz: holds no outputs of image c.png",), *COMPARE, "--reference", "r.npz")
    assert "compare:" not in result.err
    Path("images/c.png").unlink()
    Path("images/b.png").write_bytes(Path("images/a.png").read_bytes())
    for call in (COMPARE, EVALUATE):
        result = command.refused(1, ("image b.png had sha256",), *call, "--reference", "r.npz")
        assert f"{call[0]}:" not in result.err


def test_notice_comes_before_the_work(command: CommandLine) -> None:
    """What `compile` assumes without --preprocess is said before the calibration begins."""
    lines = command("compile", "net.onnx", "--calib", "images", "-o", "other").err.splitlines()
    notice = next(i for i, line in enumerate(lines) if line.startswith("notice: no --preprocess given"))
    assert notice < next(i for i, line in enumerate(lines) if "calibrate" in line)
    assert sum(line.startswith("notice: no --preprocess") for line in lines) == 1


@pytest.mark.parametrize("name", ["model.bin", "model.xmodel", "manifest.json"])
def test_file_of_a_build_stands_for_the_build(command: CommandLine, name: str) -> None:
    assert command("run", f"build/{name}", "images").out == command(*RUN).out


def test_traceback_is_a_global_option(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`npuforge --traceback compile`; no environment variable."""

    def fault(*_: object, **__: object) -> None:
        raise IndexError("a fault")

    monkeypatch.setattr("npuforge.compile.steps.write_files.write_xmodel", fault)
    monkeypatch.setenv("NPUFORGE_TRACEBACK", "1")
    result = command(*COMPILE)
    assert result.code == 1 and "Traceback" not in result.err
    assert "`npuforge --traceback ...`" in result.err.splitlines()[-1]
    assert "Traceback" in command("--traceback", *COMPILE).err


def test_user_mistakes_show_no_traceback_even_when_asked(command: CommandLine) -> None:
    assert "Traceback" not in command("--traceback", "arch", "nope").err


def test_page_names_every_code() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "exit-codes.md").read_text()
    assert all(f"| {code} |" in page for code in (0, 1, 2, 3, 130, 143))


def test_batch_is_an_error_of_the_model(command: CommandLine) -> None:
    onnx.save(tiny_model(shape=(2, 3, 16, 16)), "two.onnx")
    command.refused(1, ("has a batch of 2",), "compile", "two.onnx", *GOOD[1:])
