"""The command line itself: help with examples, usage errors, JSON of every sub-command, plain progress lines and bars on a terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import GOOD, CommandLine, node, save_model, tiny_model

from npuforge.compile import pipeline
from npuforge.compile.steps.calibrate import FEW_IMAGES
from npuforge.hw_kernels.isa.instructions import BY_NAME
from npuforge.scripts import cli

SUB_COMMANDS = [(name,) for name in cli.COMMANDS if name != "reference"] + [("reference", "record")]
QUANTIZE = ("quantize", *GOOD[:-2], "-o", "q.npz")
RUN = ("run", "build", "images")
COMPARE = ("compare", "build", "images")
EVALUATE = ("evaluate", "build", "--images", "images", "--truth", "truth.json")
RECORD = ("reference", "record", "net.onnx", "images", "-o", "r.npz")


def plain(text: str) -> str:
    """Help text without frames, colours and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("name", SUB_COMMANDS, ids=" ".join)
def test_help_has_an_example(command: CommandLine, name: tuple[str, ...]) -> None:
    """The example is a call of this very sub-command, and every option in it exists."""
    result = command(*name, "--help")
    text = plain(result.out)
    assert result.code == 0 and not result.err
    example = re.search(r"Example: npuforge ([^│]*?)(?= Arguments| Options)", text)
    assert example, text
    assert example[1].startswith(" ".join(name))
    for option in re.findall(r"(?<=\s)--?[a-z-]+", example[1]):
        assert option in text.replace(example[0], ""), option
    assert "--json" in text


def test_help_lists_every_sub_command(command: CommandLine) -> None:
    for option in ("--help", "-h"):
        result = command(option)
        assert result.code == 0
        assert all(re.search(rf"[│|\s]{name}\s", result.out) for name in cli.COMMANDS)


def test_every_command_file_is_registered() -> None:
    """DESIGN section 9 and the folder agree with the list."""
    folder = Path(cli.__file__).parent
    assert {p.stem.removeprefix("command_") for p in folder.glob("command_*.py")} == set(cli.COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("frobnicate",), ("No such command 'frobnicate'", "`npuforge --help`")),
        (("--frobnicate",), ("No such option: --frobnicate", "`npuforge --help`")),
        (("compile",), ("Missing argument 'MODEL.onnx'", "`npuforge compile --help`")),
        (("quantize", "net.onnx"), ("Missing option '--output'", "`npuforge quantize --help`")),
        (("reference", "play"), ("No such command 'play'", "`npuforge reference --help`")),
        (("run", "build", "images", "--threads", "0"), ("--threads", "`npuforge run --help`")),
        (("bench", "build", "--peer", "abacus"), ("--peer abacus: expected one of onnxruntime",)),
        (("bench", "build", "--runs", "0"), ("--runs", "`npuforge bench --help`")),
        (("run", "build", "images", "--score", "2"), ("--score", "`npuforge run --help`")),
        (("run", "build", "images", "images"), ("images", "`npuforge run --help`")),
    ],
)
def test_usage_errors_are_one_line(command: CommandLine, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert not command.refused(2, words, *arguments).out


@pytest.mark.parametrize("arguments", [(), ("reference",)])
def test_no_arguments_show_the_help(command: CommandLine, arguments: tuple[str, ...]) -> None:
    result = command(*arguments)
    assert result.code == 2 and "Usage: npuforge" in result.out and not result.err


# ---- JSON
def keys(*wanted: str) -> Any:
    """A check that all keys are there."""
    return lambda value: set(wanted) <= set(value)


@pytest.mark.parametrize(
    ("arguments", "check"),
    [
        (("inspect", "net.onnx"), keys("partitions", "macs", "nodes", "npu_share")),
        (("compile", *GOOD), keys("model", "performance", "memory", "mode", "notices", "seconds")),
        (("compile", *GOOD[:-1], "d", "--target", "dpu:DPUCZDX8G"), lambda v: v["dpu_nodes"] > 0 and v["compiler"]),
        (("compile", *GOOD[:-1], "d", "--target", "ascend"), keys("soc", "command", "operators", "ran")),
        (("export", "net.onnx", "--to", "tensorrt"), lambda v: v["operators"] == [] and v["without_kernel"] == {}),
        (QUANTIZE, lambda v: v["mode"] == "fine" and v["images"] == 2),
        (RUN, lambda v: set(v) == {"a.png", "b.png"}),
        (COMPARE, lambda v: v["device_equality"]["values_differing"] == 0),
        (EVALUATE, lambda v: all(0 <= v[c]["map"] <= 1 for c in v) and len(v) == 3),
        (("report", "build", "-o", "r.html"), keys("layers", "worst_layers")),
        (("bench", "build", "--runs", "3"), lambda v: v["timing"]["median"] > 0 and v["ratio"] is None),
        (("bench", "build", "--runs", "3", "--peer", "onnxruntime"), lambda v: v["ratio"] > 0),
        (RECORD, lambda v: v["images"] == 2 and v["file"] == "r.npz"),
        (("board", "xnpu_top_hw.h", "--arch", "nf-b4096"), keys("arch", "uio", "registers", "memory")),
        (("flash", "build", "--to", "images"), lambda v: "build/model.bin" in v["files"] and not v["overlay"]),
        (("disasm", "build"), lambda v: any(row["opcode"] == "CONV" for row in v["instructions"])),
        (("disasm", "build", "--sections"), lambda v: any(s["name"] == "instructions" for s in v["sections"])),
        (("arch",), keys("nf-b1024", "nf-b4096")),
        (("arch", "nf-b1024"), keys("name", "fingerprint", "macs_per_cycle")),
        (
            ("arch", "nf-b1024", "nf-b4096"),
            lambda v: (
                any("pixel_parallel" in line for line in v["differences"])
                and v["derived"]["macs_per_cycle"] == [512, 2048]
            ),
        ),
        (("ops",), lambda v: any(row["name"] == "Conv" and row["npu"] for row in v)),
    ],
    ids=lambda a: " ".join(a[:1]) if isinstance(a, tuple) else None,
)
def test_json(command: CommandLine, arguments: tuple[str, ...], check: Any) -> None:
    """Standard output is one JSON document without NaN, and no progress is shown."""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    result = command(*arguments, "--json")
    assert result.code == 0, result
    value = json.loads(result.out, parse_constant=refuse)
    assert check(value), value
    assert not re.search(r"\d+/\d+", result.err)


def test_every_sub_command_with_json_is_tested() -> None:
    named = {case[0][0] for m in test_json.pytestmark for case in m.args[1]}  # type: ignore[attr-defined]
    assert named == set(cli.COMMANDS)


def test_json_with_an_error_or_a_gate(command: CommandLine) -> None:
    """An error leaves standard output empty; an exceeded gate does not: the figures are there, and the exit code."""
    assert not command.refused(1, ("nowhere",), "run", "build", "nowhere", "--json").out
    result = command(*COMPARE, "--min-cosine", "1", "--json")
    assert result.code == 3 and json.loads(result.out)["gates"][0]["passed"] is False


def test_disasm_objects_are_the_lines(command: CommandLine) -> None:
    """Each object is the instruction of its line: place in the file, opcode, engine, tokens, fields, layer."""
    value = json.loads(command("disasm", "build", "--json").out)
    lines = [line for line in command("disasm", "build").out.splitlines() if not line.startswith(";")]
    data = Path("build/model.bin").read_bytes()
    assert len(value["instructions"]) == len(lines)
    for number, (row, line) in enumerate(zip(value["instructions"], lines, strict=True)):
        assert row["index"] == number and row["opcode"] in line
        assert data[row["offset"]] == BY_NAME[row["opcode"]].opcode
        assert f"wait:{'+'.join(row['pop']) or '-'} " in line and f"give:{'+'.join(row['push']) or '-'} " in f"{line} "
        assert "pop" not in row["fields"] and all(isinstance(v, int) for v in row["fields"].values())
    named = {row["layer"]["name"] for row in value["instructions"] if row["layer"]}
    assert {"stem", "head"} <= named
    section = next(s for s in value["sections"] if s["name"] == "instructions")
    assert section["size"] == 128 * len(lines) and section["offset"] == value["instructions"][0]["offset"]


def test_arch_compares_derived_figures(command: CommandLine) -> None:
    """From the independent parameters by hand: 16 lanes squared times pixels in parallel; two operations a MAC."""
    text = command("arch", "nf-b1024", "nf-b4096").out
    a, b = (json.loads(command("arch", name, "--json").out) for name in ("nf-b1024", "nf-b4096"))
    assert f"macs_per_cycle: {256 * a['pixel_parallel']} != {256 * b['pixel_parallel']} (x4)" in text
    gops = [round(2 * 256 * arch["pixel_parallel"] * arch["clock_mhz"] / 1000, 1) for arch in (a, b)]
    assert f"peak_gops: {gops[0]} != {gops[1]}" in text
    width = [arch["axi_ports"] * arch["axi_bits"] // 8 for arch in (a, b)]
    assert re.search(rf"ddr_bytes_per_cycle: {width[0]} [!=]= {width[1]}", text)
    same = command("arch", "nf-b1024", "nf-b1024").out.splitlines()
    assert same[0] == "no parameter differs" and not any("!=" in line for line in same)


@pytest.mark.parametrize("name", ["placement.html", "placement.svg"])
def test_compile_and_inspect_write_the_same_graph(command: CommandLine, name: str) -> None:
    result = command("compile", *GOOD, "--graph", f"c/{name}")
    assert result.code == 0, result.err
    assert "1 node on the CPU, because:" in result.out and "MMAC on the NPU" in result.out
    assert command("inspect", GOOD[0], "--graph", f"i/{name}").code == 0
    assert Path(f"c/{name}").read_text() == Path(f"i/{name}").read_text()


def test_compile_shows_the_placement_as_json(command: CommandLine) -> None:
    placed = json.loads(command("compile", *GOOD, "--json").out)["placement"]
    shown = json.loads(command("inspect", GOOD[0], "--json").out)
    assert {k: placed[k] for k in shown} == shown
    assert any(n["reason"] and n["remedy"] for n in placed["nodes"])


def test_the_graph_of_a_foreign_target_is_refused(command: CommandLine) -> None:
    arguments = ("compile", *GOOD, "--target", "dpu:DPUCZDX8G", "--graph", "g.svg")
    command.refused(2, ("--graph g.svg", "leave it out"), *arguments)


def test_inspect_summary_first_then_reasons(command: CommandLine) -> None:
    """Five Softsigns and the Sigmoid on the CPU for one reason: counted once, the first names, all with --verbose."""
    tail = [node("Softsign", [f"s{i}" if i else "h"], ["t" if i == 4 else f"s{i + 1}"], f"soft{i}") for i in range(5)]
    save_model(tiny_model(tail=tail), Path("soft.onnx"))
    lines = command("inspect", "soft.onnx").out.splitlines()
    assert lines[0] == "model: soft" and lines[1] == "inputs: x 1x3x16x16" and lines[3].startswith("partitions: NPU (")
    assert "MMAC on the NPU" in lines[4] and re.match(r"\d+ nodes on the CPU, because:", lines[5])
    group = next(i for i, line in enumerate(lines) if "soft0" in line)
    assert lines[group - 1].split(" x ")[0].strip() == "6"
    assert lines[group].endswith("soft0 (Softsign), soft1 (Softsign), soft2 (Softsign) and 3 more")
    assert not any("stem" in line for line in lines)
    everything = command("inspect", "soft.onnx", "--verbose").out.splitlines()
    assert everything[:6] == lines[:6]
    assert any("soft3 (Softsign), soft4 (Softsign)" in line for line in everything)
    assert any(re.search(r"NPU +Conv.* stem$", line) for line in everything)
    told = json.loads(command("inspect", "soft.onnx", "--json").out)["nodes"]
    remedies = {n["remedy"] for n in told if n["reason"]}
    assert remedies and all(any(line.endswith(f": {r}") for line in everything) for r in remedies)
    assert not any("remedy for" in line for line in lines)


# ---- progress
def test_progress_is_plain_lines_without_a_terminal(command: CommandLine) -> None:
    result = command("compile", *GOOD)
    assert result.code == 0
    assert "\x1b" not in result.err and "\r" not in result.err
    lines = result.err.splitlines()
    steps = [re.match(r"\[(\d+)/12\] ([a-z_]+)$", line) for line in lines]
    assert [int(m[1]) for m in steps if m] == list(range(1, 13))
    assert [m[2] for m in steps if m] == [*(step.name for step in pipeline.ALL_STEPS), "write"]
    assert [line for line in lines if "/2 " in line] == ["[6/12] calibrate: 1/2 images", "[6/12] calibrate: 2/2 images"]
    quantising = [line for line in command(*QUANTIZE).err.splitlines() if re.match(r"\[\d/7\] [a-z]+$", line)]
    assert len(quantising) == 7
    assert command(*RUN).err.splitlines() == ["run: 1/2", "run: 2/2"]


def test_progress_lines_stay_few(capsys: pytest.CaptureFixture[str]) -> None:
    from npuforge.scripts.common import progress

    with progress() as show:
        for done in range(1, 1001):
            show("calibrate", done, 1000)
    assert capsys.readouterr().err.splitlines() == [f"calibrate: {n}/1000" for n in (1, 250, 500, 750, 1000)]


def test_progress_is_bars_on_a_terminal(command: CommandLine) -> None:
    """A pseudo-terminal of `script`; results and errors are as elsewhere."""
    tool = shutil.which("script")
    if tool is None:
        pytest.skip("script (util-linux) is not installed")
    source = str(Path(__file__).resolve().parents[2] / "src")
    line = f"'{sys.executable}' -m npuforge.scripts.cli compile {' '.join(GOOD)}"
    environment = os.environ | {"PYTHONPATH": source, "TERM": "xterm-256color", "COLUMNS": "100"}
    done = subprocess.run(
        [tool, "-qec", line, "/dev/null"], env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "━" in done.stdout and "\x1b[" in done.stdout
    text = plain(done.stdout)
    assert "[12/12] write" in text and "12/12" in text and "2/2" in text and "written: build/ in" in text
    assert "calibrate: 1/2" not in text


def test_written_in_any_working_folder(command: CommandLine) -> None:
    """-o defaults to build/, and an absolute folder works as well."""
    assert command("compile", *GOOD[:-2], "-o", Path("else/where").absolute()).code == 0
    assert command("disasm", Path("else/where/model.bin")).code == 0
    assert (
        command(
            "run", "else/where", "images/a.png", "--draw", "drawn", "--tensors", "t/all.npz", "--profile", "trace.json"
        ).code
        == 0
    )
    assert Path("drawn/a.png").is_file() and Path("t/all.npz").is_file()
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


def test_few_calibration_images_are_noticed(command: CommandLine) -> None:
    """One image, two, and as many as it takes (copies count: nobody can tell them from a still scene)."""
    for source, count in (("images/a.png", "1 calibration image:"), ("images", "2 calibration images:")):
        result = command("compile", "net.onnx", "--calib", source, "--preprocess", "net.yaml", "-o", "few")
        notices = [line for line in result.err.splitlines() if "calibration image" in line]
        assert len(notices) == 1 and notices[0].startswith(f"notice: only {count} ranges may be too small")
        assert f"{FEW_IMAGES} or more" in notices[0] and "show the objects" in notices[0]
        assert any(count in n for n in json.loads(Path("few/summary.json").read_text())["notices"])
    for number in range(FEW_IMAGES - 2):
        shutil.copy("images/a.png", f"images/c{number}.png")
    result = command("compile", *GOOD)
    assert result.code == 0 and "calibration image" not in result.err


def test_compare_prints_the_detections_of_all_images_that_were_lost_and_added(command: CommandLine) -> None:
    """The totals are those of the report's tables, image by image; with more images than are drawn, those too."""
    for number in range(14):
        shutil.copy(f"images/{'ab'[number % 2]}.png", f"images/c{number:02}.png")
    result = command(*COMPARE, "--report", "r.html")
    assert result.code == 0, result.err
    found = re.search(
        r"^detections: (\d+) of the reference's (\d+) found by the device, (\d+) lost, (\d+) added$", result.out, re.M
    )
    assert found, result.out
    counts = [int(v) for v in found.groups()]
    report = json.loads(Path("r.json").read_text())
    assert [report["detection_counts"][k] for k in ("found", "reference", "lost", "added")] == counts
    assert counts[0] + counts[2] == counts[1] > 0
    total = json.loads(Path("build/summary.json").read_text())["performance"]["cycles"]
    assert sum(part["cycles"] for part in report["partitions"]) == total  # what compile prints
    assert len(report["images"]) == 12 and counts[1] == 8 * sum(
        len(i["detections"]["float"]) for i in report["images"][:2]
    )
    assert found[0].removeprefix("detections: ") in " ".join(Path("r.html").read_text().replace("&#39;", "'").split())
