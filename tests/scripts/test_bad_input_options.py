"""Bad calibration images, preprocessing records, choices and arch files given to `npuforge compile`: one line, an exit code, nothing left or harmed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from command_line import GOOD, CommandLine

from npuforge.hw_kernels import arch as arches


def replaced(option: str, value: str) -> list[str]:
    """GOOD with another value for one of its options."""
    arguments = list(GOOD)
    arguments[arguments.index(option) + 1] = value
    return arguments


# ---- calibration images
def test_no_calibration(command: CommandLine) -> None:
    command.refused(1, ("no calibration images", "--calib"), "compile", "net.onnx", "-o", "build")


def test_calibration_folder_missing(command: CommandLine) -> None:
    command.refused(1, ("nowhere: no such image file or folder",), "compile", *replaced("--calib", "nowhere"))


def test_calibration_folder_empty(command: CommandLine) -> None:
    Path("empty").mkdir()
    Path("empty/notes.txt").write_text("no image")
    command.refused(1, ("empty: holds no image", "*.jpg", "*.png"), "compile", *replaced("--calib", "empty"))


def damaged(kind: str) -> bytes:
    """Bytes of a file that is named like an image."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    png, jpg = (cv2.imencode(suffix, pixels)[1].tobytes() for suffix in (".png", ".jpg"))
    return {
        "text": b"not an image",
        "empty": b"",
        "cut png": png[: len(png) // 2],
        "cut jpg": jpg[: len(jpg) // 2],
        "html": b"<!DOCTYPE html><html></html>",
    }[kind]


@pytest.mark.parametrize("kind", ["text", "empty", "cut png", "cut jpg", "html"])
def test_calibration_image_unreadable(command: CommandLine, kind: str) -> None:
    """The bad file comes after good ones: the pass has begun. Nothing of OpenCV's own chatter reaches the terminal."""
    Path("images/z.jpg").write_bytes(damaged(kind))
    words = ("images/z.jpg: not an image that OpenCV can read", "bytes)", "replace or remove it")
    command.refused(1, words, "compile", *GOOD)


def test_calibration_link_to_nowhere(command: CommandLine) -> None:
    Path("links").mkdir()
    Path("links/a.png").symlink_to("/nowhere/a.png")
    command.refused(1, ("links: holds no image",), "compile", *replaced("--calib", "links"))


# ---- the preprocessing record
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("width: 32\nheight: 32\n", ("gives 32x32 images", "input x takes 16x16", "correct width and height")),
        ("widht: 32\n", ("bad.yaml: unknown key `widht`", "legal keys: width, height")),
        ("color: GRB\n", ("bad.yaml: color: 'GRB' is not legal", "RGB, BGR")),
        ("color: [RGB]\n", ("bad.yaml: color", "RGB, BGR")),
        ("width: 16.5\n", ("bad.yaml: width: expected an integer in 0..16384, found 16.5",)),
        ("std: 0\n", ("bad.yaml: std must be positive",)),
        ("std: [1, 2]\n", ("bad.yaml: std: expected three numbers", "found [1, 2]")),
        ("mean: [1, .nan, 2]\n", ("bad.yaml: mean: expected a number, found nan",)),
        ("pad_value: 300\n", ("bad.yaml: pad_value: expected an integer in 0..255, found 300",)),
        ("a: [1,\n b: }", ("bad.yaml: not valid YAML", "line 2")),
        ("- 1\n", ("bad.yaml: expected keys and values, found list",)),
        ("", ("bad.yaml: expected keys and values",)),
        ("1: 3\n", ("bad.yaml: unknown key `1`",)),
        ("? [a, b]\n: 3\n", ("bad.yaml: not valid YAML",)),
        ("class_names: [yes, no]\n", ("bad.yaml: class_names", "quote those")),
        ("head:\n", ("bad.yaml: head: expected keys and values",)),
        ("head: {kind: yolo99}\n", ("bad.yaml: head: kind: 'yolo99' is not legal", "fastestdet", "yolox")),
        ("head: {score_threshold: 2}\n", ("score_threshold: expected a number in 0.0..1.0, found 2",)),
        ("head: {kind: yolox, options: {foo: 1}}\n", ("unknown key `foo`, legal keys: outputs, strides",)),
        ("head: {kind: yolox, options: {strides: [8]}}\n", ("yolox head: output `y` [1, 7, 8, 8] does not fit",)),
        ("head: {kind: fastestdet, options: {outputs: {predictions: q}}}\n", ("no output `q`", "outputs are `y`")),
        ("head: {kind: darknet}\n", ("darknet head: needs one list of anchors per stride",)),
    ],
)  # fmt: skip
def test_preprocessing(command: CommandLine, text: str, words: tuple[str, ...]) -> None:
    Path("bad.yaml").write_text(text)
    command.refused(1, words, "compile", *replaced("--preprocess", "bad.yaml"))


def test_preprocessing_is_no_text(command: CommandLine) -> None:
    command.refused(1, ("images/a.png: cannot be read",), "compile", *replaced("--preprocess", "images/a.png"))


def test_preprocessing_missing(command: CommandLine) -> None:
    words = ("nowhere.yaml: no such preprocessing file; built-in ones:", "yolox_nano")
    command.refused(1, words, "compile", *replaced("--preprocess", "nowhere.yaml"))


# ---- choices
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mode", "rough"), ("--mode rough: expected one of fine, pow2",)),
        (("--calibrator", "guess"), ("--calibrator guess: expected one of minmax, percentile",)),
        (("--alpha", "3"), ("--alpha", "compile --help")),
        (("--alpha", "x"), ("--alpha", "compile --help")),
        (("--calib-count", "-1"), ("--calib-count", "compile --help")),
        (("--colour", "red"), ("No such option: --colour", "`npuforge compile --help`")),
        (("extra",), ("extra", "compile --help")),
    ],
)
def test_choices(command: CommandLine, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    command.refused(2, words, "compile", *GOOD, *arguments)


def test_unknown_device(command: CommandLine) -> None:
    for name in ("run", "compare"):
        words = ("--device fpga9: this installation has", "sim")
        command.refused(2, words, name, "build", "images", "--device", "fpga9")


# ---- the arch file
def arch_text(kind: str) -> bytes:
    """A damaged arch file."""
    good: dict[str, Any] = arches.load("nf-b1024").to_json()
    changed: dict[str, Any] = {
        "wrong key": good | {"pixel_paralel": 2},
        "missing key": {k: v for k, v in good.items() if k != "clock_mhz"},
        "wrong type": good | {"clock_mhz": "300"},
        "boolean": good | {"axi_ports": True},
        "no power of two": good | {"pixel_parallel": 3},
        "out of range": good | {"sram_bytes": 64},
        "unknown feature": good | {"features": ["warp"]},
        "feature list": good | {"features": [["bf16"]]},
        "list": [good],
    }
    if kind in changed:
        return json.dumps(changed[kind]).encode()
    return {
        "not json": b'{"name": ',
        "not a number": json.dumps(good).replace('"clock_mhz": ', '"clock_mhz": NaN, "x": ').encode(),
        "no text": b"\xff\xfe\x00",
        "deep": b"[" * 100_000,
        "empty": b"",
    }[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("wrong key", ("my.json: unknown key 'pixel_paralel'", "legal keys: name, pixel_parallel")),
        ("missing key", ("my.json: missing key 'clock_mhz'", "legal keys: ")),
        ("wrong type", ("my.json: key 'clock_mhz': expected an integer in 1..2000, found '300'",)),
        ("boolean", ("my.json: key 'axi_ports': expected a power of two", "found True")),
        ("no power of two", ("my.json: key 'pixel_parallel': expected a power of two in 1..64, found 3",)),
        ("out of range", ("my.json: key 'sram_bytes': expected an integer in 65536..", "found 64")),
        ("unknown feature", ("my.json: key 'features'", "bf16, decode, depthwise", "found ['warp']")),
        ("feature list", ("my.json: key 'features'", "found [['bf16']]")),
        ("list", ("my.json: expected a JSON object", "found list")),
        ("not json", ("my.json: not a readable JSON file", "line 1 column")),
        ("not a number", ("my.json: not a readable JSON file", "NaN is not a JSON number")),
        ("no text", ("my.json: not a readable JSON file",)),
        ("deep", ("nested too deeply",)),
        ("empty", ("my.json: not a readable JSON file",)),
    ],
)
def test_arch_file(command: CommandLine, kind: str, words: tuple[str, ...]) -> None:
    Path("my.json").write_bytes(arch_text(kind))
    command.refused(1, words, "compile", *GOOD, "--arch", "my.json")


def test_unknown_arch(command: CommandLine) -> None:
    words = (
        "arch 'nf-b9': no such configuration",
        "known: nf-b1024, nf-b1024-bf16, nf-b4096, nf-b4096-bf16",
        "give the path of a .json file",
    )
    command.refused(2, words, "compile", *GOOD, "--arch", "nf-b9")
    command.refused(2, ("arch 'nf-b9'",), "arch", "nf-b9")
    command.refused(1, ("my.json",), "inspect", "net.onnx", "--arch", "my.json")


# ---- values that cannot be
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "build", "images", "--threads", "100000000000"),
        ("bench", "build", "--threads", "257"),
        ("compare", "build", "images", "--threads", "0"),
        ("compare", "build", "images", "--min-cosine", "2"),
        ("compare", "build", "images", "--min-cosine", "-5"),
        ("compare", "build", "images", "--min-cosine", "nan"),
        ("compare", "build", "images", "--max-abs-error", "-1"),
        ("compare", "build", "images", "--max-abs-error", "inf"),
        ("compare", "build", "images", "--max-mean-error", "nan"),
        ("compare", "build", "images", "--truth", "truth.json", "--max-map-drop", "nan"),
    ],
    ids=" ".join,
)
def test_numbers_out_of_range(command: CommandLine, arguments: tuple[str, ...]) -> None:
    command.refused(2, (arguments[-2], "expected"), *arguments)


@pytest.mark.parametrize(
    "arguments", [("compile", *GOOD[:-1], ""), ("compile", "", *GOOD[1:]), ("compile", *GOOD[:-2], "--output=")]
)
def test_unset_variable_of_a_script(command: CommandLine, arguments: tuple[str, ...]) -> None:
    """An empty folder name is not the current folder."""
    command.refused(2, ("expected a value, found nothing", "unset"), *arguments)


def test_configuration_of_ones_own(command: CommandLine) -> None:
    """`arch -o` writes what `--arch` reads."""
    assert command("arch", "nf-b4096", "-o", "mine.json").code == 0
    assert arches.load("mine.json").to_json() == arches.load("nf-b4096").to_json()
    assert command("compile", *GOOD, "--arch", "mine.json").code == 0
    command.refused(2, ("--output mine.json", "name it"), "arch", "-o", "mine.json")
