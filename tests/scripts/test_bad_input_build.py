"""Build folders, recordings, truth files and images that are damaged or belong together with something else; precision gates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import GOOD, CommandLine, save_model, tiny_model

from npuforge.compile.steps.import_onnx import import_model
from npuforge.hw_kernels import arch as arches
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.comparison import OutputError, index_tensors

Change = Callable[[dict[str, Any]], Any]


def rehash() -> None:
    """Makes the manifest right again for the changed files."""
    path = Path("build/manifest.json")
    manifest = json.loads(path.read_text())
    for name, entry in manifest["files"].items():
        entry["sha256"] = hashlib.sha256(Path("build", name).read_bytes()).hexdigest()
    path.write_text(json.dumps(manifest))


# ---- the build folder
@pytest.mark.parametrize("name", ["run", "compare", "report", "evaluate", "bench"])
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("images", ("images/manifest.json: cannot be read (No such file", "a folder that `npuforge compile` wrote")),
        ("nowhere", ("nowhere/manifest.json: cannot be read",)),
        ("net.onnx", ("net.onnx: a file without manifest.json beside it", "a file in it")),
    ],
)
def test_no_build_folder(command: CommandLine, name: str, folder: str, words: tuple[str, ...]) -> None:
    more = {
        "run": ["images"],
        "compare": ["images"],
        "report": [],
        "bench": [],
        "evaluate": ["--images", "images", "--truth", "truth.json"],
    }
    command.refused(1, words, name, folder, *more[name])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("not a manifest", "line 1 column 1")),
        ("[]", ("not a manifest",)),
        ('{"files": 3}', ("not a manifest",)),
        ('{"files": {"model.bin": 3}}', ("not a manifest",)),
        ('{"files": {"model.bin": {}}}', ("key 'sha256' is missing",)),
        ('{"files": {}}', ("format None, expected 1",)),
        ('{"format": 2, "files": {}}', ("format 2, expected 1: another version",)),
        ('{"format": 1, "files": {}}', ("does not list model.bin",)),
        ('{"format": 1, "files": {"../net.onnx": {"sha256": "0"}}}', ("not plain names",)),
        ('{"format": 1, "files": {"model.bin": {"sha256": 0}}}', ("not plain names with their sha256",)),
        ("\0", ("not a manifest",)),
    ],
)
def test_manifest(command: CommandLine, text: str, words: tuple[str, ...]) -> None:
    Path("build/manifest.json").write_text(text)
    command.refused(1, ("build/manifest.json", *words, "compile again"), "run", "build", "images")


def test_manifest_without_preprocessing(command: CommandLine) -> None:
    path = Path("build/manifest.json")
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in manifest.items() if k != "preprocess"}))
    command.refused(1, ("build/manifest.json", "key 'preprocess' is missing"), "run", "build", "images")
    path.write_text(json.dumps(manifest | {"preprocess": {"widht": 3}}))
    command.refused(1, ("build/manifest.json", "unknown key `widht`"), "run", "build", "images")


@pytest.mark.parametrize("name", ["model.bin", "model.xmodel", "quantised.npz", "reference.onnx", "summary.json"])
def test_any_file_changed_or_missing(command: CommandLine, name: str) -> None:
    path = Path("build", name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    words = (f"build/{name}: sha256 is", "the manifest says", "changed or is damaged, compile again")
    command.refused(1, words, "run", "build", "images")
    path.unlink()
    command.refused(1, (f"build/{name}: missing, the manifest lists it",), "run", "build", "images")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("quantised.npz", b"junk", ("build/quantised.npz: not a graph saved by npuforge", "compile the model again")),
        ("summary.json", b"{", ("build/summary.json: not a summary", "compile again")),
        ("summary.json", b"{}", ("build/summary.json: not a summary",)),
        ("summary.json", b'{"model": {"sha256": ""}}', ("summary.json", "KeyError: 'performance'", "compile again")),
        ("reference.onnx", b"<html>", ("build/reference.onnx is an HTML or XML page",)),
    ],
)
def test_damage_that_the_manifest_vouches_for(
    command: CommandLine, name: str, content: bytes, words: tuple[str, ...]
) -> None:
    Path("build", name).write_bytes(content)
    rehash()
    command.refused(1, words, "compare", "build", "images")


# ---- the .bin (every byte: tests/board_runtime/test_bad_bin.py)
def test_bytes_of_the_bin(command: CommandLine) -> None:
    """A byte flipped, the manifest made right: `run` and `disasm` say which file, and where in it."""
    path = Path("build/model.bin")
    good = path.read_bytes()
    places = {0: "0x0: magic", 4: "0x4: version", 12: "0xc: size", len(good) - 1: "CRC-32 expected"}
    for position in (*places, 8, 16, 48, 52, 56, 0xFF, 0x400, len(good) // 2):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :])
        rehash()
        words = ("build/model.bin: .bin at 0x", places.get(position, ""))
        command.refused(1, words, "run", "build", "images")
        command.refused(1, words, "disasm", "build")


@pytest.mark.parametrize("size", [0, 100, 1000])
def test_truncated_bin(command: CommandLine, size: int) -> None:
    path = Path("build/model.bin")
    path.write_bytes(path.read_bytes()[:size])
    rehash()
    command.refused(1, ("build/model.bin: .bin at 0x", f"found {size}", "truncated"), "run", "build", "images")


def test_bin_for_another_arch(command: CommandLine) -> None:
    """The parameters that differ are named, the others are not."""
    here, there = arches.load("nf-b1024").to_json(), arches.load("nf-b4096").to_json()
    line = command.refused(
        1,
        ("build/model.bin: compiled for another arch", "recompile with --arch"),
        "run",
        "build",
        "images",
        "--arch",
        "nf-b1024",
    ).error_line
    for key in here:
        assert (key in line) == (here[key] != there[key]), (key, line)
    Path("mine.json").write_text(json.dumps(there | {"clock_mhz": 250}))
    line = command.refused(
        1, ("clock_mhz expected 250, found 300",), "run", "build", "images", "--arch", "mine.json"
    ).error_line
    assert "axi_ports" not in line and "sram_bytes" not in line
    assert command("run", "build", "images", "--arch", "nf-b4096").code == 0


# ---- images
@pytest.mark.parametrize("name", ["run", "compare"])
def test_images(command: CommandLine, name: str) -> None:
    command.refused(1, ("nowhere.png: no such image file or folder",), name, "build", "nowhere.png")
    command.refused(1, ("net.yaml: not an image",), name, "build", "net.yaml")
    Path("empty").mkdir()
    command.refused(1, ("empty: holds no image",), name, "build", "empty")
    Path("images/b.png").write_bytes(b"text")
    more = ("--draw", "drawn", "--tensors", "t.npz") if name == "run" else ("--report", "r.html")
    command.refused(1, ("images/b.png: not an image", "replace or remove it"), name, "build", "images", *more)


# ---- truth
def coco(change: Change) -> str:
    """truth.json, changed."""
    data = json.loads(Path("truth.json").read_text())
    return json.dumps(change(data) or data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: [d], ("expected a JSON object with images",)),
        (lambda d: d.pop("images") and None, ("`images` is missing",)),
        (lambda d: d["images"].pop() and None, ("image_id 1 is not among the images",)),
        (lambda d: d["images"][1].update(width="wide"), ("images[1]: `width` must be int, found 'wide'",)),
        (lambda d: d["annotations"][1].update(bbox=[1, 2, 3]), ("annotations[1]: bbox must be [x, y, width, height]",)),
        (lambda d: d["annotations"][1].update(bbox=[1, 2, -3, 4]), ("annotations[1]: bbox",)),
        (lambda d: d["annotations"][1].update(bbox=[1, 2, 3, 2**80]), ("annotations[1]: bbox",)),
        (lambda d: d["annotations"][1].update(bbox=[1, 2, 3, float("nan")]), ("annotations[1]: bbox",)),
        (lambda d: d["annotations"][1].update(area="big"), ("annotations[1]: area must be a number", "'big'")),
        (lambda d: d["annotations"][1].update(iscrowd="no"), ("annotations[1]: iscrowd must be 0 or 1",)),
        (lambda d: d["annotations"][1].update(keypoints=3), ("annotations[1]: keypoints must be a list of numbers",)),
        (lambda d: d["annotations"][1].update(category_id=9), ("category_id 9 is not among the categories",)),
        (lambda d: d["categories"].append(d["categories"][0]) and None, ("categories[2]: id 1 appears twice",)),
    ],
)
def test_coco_truth(command: CommandLine, change: Change, words: tuple[str, ...]) -> None:
    Path("bad.json").write_text(coco(change))
    arguments = ("evaluate", "build", "--images", "images", "--columns", "device", "--truth", "bad.json")
    command.refused(1, ("bad.json: ", *words), *arguments)


def test_truth_in_other_classes(command: CommandLine) -> None:
    Path("bad.json").write_text(coco(lambda d: d["categories"][1].update(name="spring")))
    words = ("classes that class_names of the preprocessing lacks: spring", "it has nut, bolt")
    command.refused(1, words, "evaluate", "build", "--images", "images", "--truth", "bad.json")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"0 0.5 0.5 x 0.1\n", ("t/a.txt:1: expected an integer class and four numbers", "0 0.5 0.5 x 0.1")),
        ("a.txt", b"\n0 0.5 0.5 0.1\n", ("t/a.txt:2: expected `class cx cy w h`, found 4 values",)),
        ("a.txt", b"0 50 50 10 10\n", ("t/a.txt:1: values must be relative",)),
        ("a.txt", b"\xff\xfe", ("t/a.txt: cannot be read",)),
        ("a.xml", b"", ("t/a.xml:1: not valid XML",)),
        ("a.xml", b"<a></a>", ("t/a.xml:1: expected <annotation>",)),
        ("a.xml", b"<annotation>\n<object></object></annotation>", ("t/a.xml:2: <object> has no <name>",)),
        ("other.md", b"", ("t: expected a COCO .json file, or a folder of YOLO .txt or Pascal VOC .xml",)),
        ("c.txt", b"", ("t: holds no label file for any of the 2 images", "a.txt")),
    ],
)
def test_truth_folder(command: CommandLine, name: str, content: bytes, words: tuple[str, ...]) -> None:
    Path("t").mkdir()
    Path("t", name).write_bytes(content)
    command.refused(1, words, "evaluate", "build", "--images", "images", "--truth", "t")


def test_truth_that_does_not_help(command: CommandLine) -> None:
    evaluate = ("evaluate", "build", "--images", "images")
    command.refused(1, ("nowhere: no such truth file",), *evaluate, "--truth", "nowhere")
    command.refused(2, ("--skip 5: no image is left, images has 2",), *evaluate, "--truth", "truth.json", "--skip", "5")
    command.refused(
        2,
        ("--columns gpu: expected some of float, integer, device",),
        *evaluate,
        "--truth",
        "truth.json",
        "--columns",
        "gpu",
    )


# ---- recordings
def test_recordings(command: CommandLine) -> None:
    record = ("reference", "record", "net.onnx", "images", "--preprocess", "net.yaml", "-o")
    compare = ("compare", "build", "images", "--reference")
    assert command(*record, "ref.npz").code == 0
    assert command(*compare, "ref.npz").code == 0
    command.refused(1, ("none.npz: no such file; expected `auto` or",), *compare, "none.npz")
    command.refused(1, ("net.onnx: not a reference recorded by",), *compare, "net.onnx")

    good = Path("ref.npz").read_bytes()
    Path("cut.npz").write_bytes(good[: len(good) // 2])
    command.refused(1, ("cut.npz: not a reference recorded by", "record it again"), *compare, "cut.npz")

    save_model(tiny_model(seed=3), Path("other.onnx"))
    assert (
        command("reference", "record", "other.onnx", "images", "--preprocess", "net.yaml", "-o", "other.npz").code == 0
    )
    hashes = [hashlib.sha256(Path(n).read_bytes()).hexdigest()[:16] for n in ("other.onnx", "net.onnx")]
    command.refused(
        1, ("other.npz: recorded from the model", *hashes, "record the reference again"), *compare, "other.npz"
    )

    Path("other.yaml").write_text(Path("net.yaml").read_text() + "color: BGR\nstd: 2\n")
    assert command(*record[:-3], "--preprocess", "other.yaml", "-o", "pre.npz").code == 0
    command.refused(1, ("pre.npz: recorded with another preprocessing: color, std differ",), *compare, "pre.npz")

    Path("images/a.png").write_bytes(Path("images/b.png").read_bytes())  # the same name, another picture
    command.refused(1, ("ref.npz: image a.png had sha256", "record the same images"), *compare, "ref.npz")
    Path("images/a.png").rename("images/new.png")
    command.refused(1, ("ref.npz: holds no outputs of image new.png",), *compare, "ref.npz")


def test_any_damage_of_a_recording(command: CommandLine) -> None:
    """25 files with eight random bytes changed: the archive's checksums find them, whichever field they hit."""
    assert command("reference", "record", "net.onnx", "images", "--preprocess", "net.yaml", "-o", "ref.npz").code == 0
    random = np.random.default_rng(2)
    good = np.frombuffer(Path("ref.npz").read_bytes(), np.uint8)
    for _ in range(25):
        damaged = good.copy()
        damaged[random.integers(0, good.size, 8)] ^= random.integers(1, 256, 8, dtype=np.uint8)
        Path("bad.npz").write_bytes(damaged.tobytes())
        words = ("bad.npz: ", "record it again")
        command.refused(1, words, "compare", "build", "images/a.png", "--reference", "bad.npz")


def test_recording_an_unreadable_image_leaves_no_file(command: CommandLine) -> None:
    Path("images/b.png").write_bytes(b"text")
    command.refused(
        1, ("images/b.png: not an image",), "reference", "record", "net.onnx", "images", "-o", "new/ref.npz"
    )


# ---- gates
@pytest.mark.parametrize(
    "gate",
    [("--min-cosine", "1"), ("--max-abs-error", "0"), ("--max-map-drop", "-100", "--truth", "truth.json")],
    ids=lambda g: g[0],
)
def test_gate_exceeded_writes_the_report(command: CommandLine, gate: tuple[str, ...]) -> None:
    result = command("compare", "build", "images", *gate, "--report", "out/r.html")
    assert result.code == 3
    assert f"precision gate exceeded: {gate[0]}; see out/r.html" in result.error_line
    assert f"gate {gate[0]}" in result.out and "EXCEEDED" in result.out
    assert gate[0] in Path("out/r.html").read_text() and "EXCEEDED" not in result.err
    (entry,) = json.loads(Path("out/r.json").read_text())["gates"]
    assert entry["name"] == gate[0] and entry["passed"] is False


def test_gates_passed(command: CommandLine) -> None:
    gates = ("--min-cosine", "0.9", "--max-abs-error", "0.5", "--max-map-drop", "100", "--truth", "truth.json")
    result = command("compare", "build", "images", *gates)
    assert result.code == 0 and result.out.count("passed") == 3


def test_gate_that_cannot_be_measured(command: CommandLine) -> None:
    command.refused(
        2, ("--max-map-drop needs the true boxes", "--truth"), "compare", "build", "images", "--max-map-drop", "1"
    )


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_nan_does_not_slip_through_a_gate(poison: float) -> None:
    reference = np.linspace(-1.0, 1.0, 9)
    found = reference.copy()
    found[4] = poison
    for pair in ((reference, found), (found, reference), (reference, found[:5])):
        error = OutputError()
        error.add("y", *pair)
        assert error.cosine <= 0 and error.largest == np.inf
    same = OutputError()
    same.add("y", found, found)  # a mask of infinities in both is no difference
    assert same.cosine == pytest.approx(1.0) and same.largest == 0


def test_class_numbers_are_counted_and_pass_no_gate() -> None:
    """Class 79 for class 0 is one wrong box, no error of 79."""
    error = OutputError()
    error.add("classes", np.array([0, 3, 79], np.int64), np.array([79, 3, 79], np.int64))
    error.add("classes", np.array([1, 2], np.int64), np.array([1, 2, 3], np.int64))
    error.add("scores", np.array([0.5, 0.25], np.float32), np.array([0.5, 0.5], np.float32))
    assert (error.indices["classes"].compared, error.indices["classes"].differing) == (5, 3)
    error.add("labels", np.array([0.0, 5.0], np.float32), np.array([0.0, 1.0], np.float32), index=True)
    assert error.indices["labels"].differing == 1
    assert error.largest == 0.25 and error.largest_of == "scores" and "scores" not in error.indices


def test_classes_of_the_bundled_network_are_known() -> None:
    """Float values in the file, class numbers by the operator's declaration."""
    demo = Path(__file__).resolve().parents[2] / "scripts" / "demo_data" / "demo.onnx"
    assert index_tensors(import_model(demo)) == {"classes"}


def test_compile_over_a_build_replaces_all_of_it(command: CommandLine) -> None:
    save_model(tiny_model(seed=9), Path("net.onnx"))
    before = {p.name: p.read_bytes() for p in Path("build").iterdir()}
    assert command("compile", *GOOD).code == 0
    after = {p.name: p.read_bytes() for p in Path("build").iterdir()}
    assert after.keys() == before.keys() and all(
        after[n] != before[n] for n in after if n != "sample.npz"
    )  # the images are the same


def test_disasm_shows_a_changed_file_and_says_so(command: CommandLine) -> None:
    assert "manifest" not in command("disasm", "build").err
    manifest = json.loads(Path("build/manifest.json").read_text())
    for entry in manifest["files"].values():
        entry["sha256"] = "0" * 64
    Path("build/manifest.json").write_text(json.dumps(manifest))
    for argument, file in (
        ("build", "model.bin"),
        ("build/model.bin", "model.bin"),
        ("build/model.xmodel", "model.xmodel"),
    ):
        result = command("disasm", argument)
        assert result.code == 0 and result.out
        assert f"notice: build/{file}: not the file that manifest.json names" in result.err


def test_curve_errors_make_their_folder(command: CommandLine) -> None:
    assert command("ops", "--curve-errors", "made/here").code == 0
    assert {p.name for p in Path("made/here").iterdir()} == {"curve-errors.md", "curve-errors.svg"}


def test_oriented_truth_for_an_upright_head(command: CommandLine) -> None:
    """Refused before the work."""
    Path("labels").mkdir()
    for name in "ab":
        Path(f"labels/{name}.txt").write_text("0 0.1 0.1 0.5 0.2 0.4 0.6 0.1 0.5\n")
    words = ("labels: oriented boxes", "fastestdet finds upright ones")
    line = command.refused(1, words, "evaluate", "build", "--images", "images", "--truth", "labels")
    assert "evaluate:" not in line.err
    command.refused(1, words, "compare", "build", "images", "--truth", "labels")


def test_build_that_another_process_is_replacing(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a new build are there, its manifest not yet: waited for."""
    assert command("compile", *GOOD[:-1], "other", "--mode", "pow2").code == 0
    for name in ("model.bin", "quantised.npz"):
        Path("other", name).rename(Path("build", name))
    rest = [p.name for p in Path("other").iterdir()]

    def finish(seconds: float) -> None:
        for name in rest:
            Path("other", name).replace(Path("build", name))

    monkeypatch.setattr("npuforge.scripts.build_folder.time.sleep", finish)
    assert open_build(Path("build")).manifest["mode"] == "pow2"
