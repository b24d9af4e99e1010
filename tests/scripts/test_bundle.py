"""The bundle: its own sample with expected outputs on a device, and the build as one tar file."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from command_line import CommandLine

from npuforge.compile.ir.errors import FormatError
from npuforge.scripts.bundle import LOWEST_COSINE, check_output, folder_for, unpack

COMPILE = ("compile", "net.onnx", "--calib", "images", "--preprocess", "net.yaml", "-o")
EQUAL = "y: as expected"


def manifest() -> dict[str, object]:
    found: dict[str, object] = json.loads(Path("build/manifest.json").read_text())
    return found


def test_the_sample_is_the_first_calibration_image_and_its_outputs_are_near_the_float_networks(
    command: CommandLine,
) -> None:
    entry = manifest()["sample"]
    assert isinstance(entry, dict)
    assert (entry["origin"], entry["inputs"], entry["outputs"]) == ("a.png", "sample.npz", "expected.npz")
    with np.load("build/sample.npz") as inputs, np.load("build/expected.npz") as outputs:
        session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        for name, wanted in zip(names, session.run(names, dict(inputs)), strict=True):
            a, b = outputs[name].ravel(), wanted.ravel()
            assert a @ b >= 0.99 * np.linalg.norm(a) * np.linalg.norm(b)
            assert entry["tensors"][name] == {
                "shape": list(wanted.shape),
                "dtype": "float32",
                "sha256": hashlib.sha256(outputs[name].tobytes()).hexdigest(),
            }


@pytest.mark.parametrize("device", ["sim", "csim"])
def test_check_runs_the_sample_on_a_device(command: CommandLine, device: str) -> None:
    assert EQUAL in command("run", "build", "--check", "--device", device).out
    found = json.loads(command("run", "build", "--check", "--device", device, "--json").out)
    assert found["sample"] == "a.png" and all(o["right"] and o["largest"] < 1e-6 for o in found["outputs"])


def test_another_outcome_is_an_error(command: CommandLine) -> None:
    """As hardware that computes something else: one expected value off by a hundredth of the range."""
    with np.load("build/expected.npz") as file:
        values = {name: file[name].copy() for name in file.files}
    name, value = next(iter(values.items()))
    value.flat[3] += 0.01 * np.abs(value).max()
    np.savez("build/expected.npz", **values)
    page = manifest()
    page["files"]["expected.npz"]["sha256"] = hashlib.sha256(Path("build/expected.npz").read_bytes()).hexdigest()  # type: ignore[index]
    Path("build/manifest.json").write_text(json.dumps(page))
    words = (f"output '{name}' of the sample on sim: expected what expected.npz of the build holds",)
    command.refused(1, words, "run", "build", "--check")
    del page["sample"]
    Path("build/manifest.json").write_text(json.dumps(page))
    command.refused(1, ("no sample with its expected outputs",), "run", "build", "--check")


def test_check_and_image_exclude_each_other(command: CommandLine) -> None:
    command.refused(2, ("leave out the image",), "run", "build", "images", "--check")
    command.refused(2, ("give an image or a folder, or --check",), "run", "build")


def test_a_network_without_calibration_has_a_drawn_sample(command: CommandLine) -> None:
    command("compile", "net.onnx", "--preprocess", "net.yaml", "--precision", "bf16", "--arch", "nf-b4096-bf16", "-o", "build")  # fmt: skip
    entry = manifest()["sample"]
    assert isinstance(entry, dict) and entry["origin"] == "drawn"
    assert "as expected" in command("run", "build", "--check").out


def test_every_command_takes_a_tar(command: CommandLine) -> None:
    assert "written: b.tar in" in command(*COMPILE, "b.tar").out
    command(*COMPILE, "again.tar")
    with tarfile.open("b.tar") as archive:
        names = archive.getnames()
        assert names == sorted(names) == sorted(p.name for p in Path("build").iterdir())
        bins = [archive.extractfile("model.bin")]
        assert bins[0] is not None and bins[0].read() == Path("build/model.bin").read_bytes()
    assert EQUAL in command("run", "b.tar", "--check").out
    assert command("run", "b.tar", "images/a.png").out == command("run", "build", "images/a.png").out
    assert "0 of" in command("compare", "b.tar", "images").out
    command("evaluate", "b.tar", "--images", "images", "--truth", "truth.json")
    command("report", "b.tar", "-o", "r.html")
    command("bench", "b.tar", "--runs", "2")


def test_the_same_files_give_the_same_tar(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        with folder_for(tmp_path / name) as folder:
            (folder / "model.bin").write_bytes(b"123")
            (folder / "manifest.json").write_bytes(b"{}")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with pytest.raises(ZeroDivisionError), folder_for(tmp_path / "c.tar"):
        _ = 1 // 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "b.tar"]


def test_two_runs_of_one_command_give_the_same_tar(command: CommandLine) -> None:
    for name in ("a.tar", "b.tar"):
        command(*COMPILE, name)
    assert Path("a.tar").read_bytes() == Path("b.tar").read_bytes()


def damaged(kind: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo(
            {"above": "../model.bin", "deep": "a/model.bin", "root": "/etc/x"}.get(kind, "model.bin")
        )
        if kind == "link":
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        entry.size = 0 if kind == "link" else 3000
        archive.addfile(entry, None if kind == "link" else io.BytesIO(bytes(3000)))
    return stream.getvalue()[: 2000 if kind == "short" else None]


@pytest.mark.parametrize("kind", ["above", "deep", "root", "link", "short"])
def test_a_hostile_tar_is_refused(tmp_path: Path, kind: str) -> None:
    file, folder = tmp_path / "b.tar", tmp_path / "to"
    folder.mkdir()
    file.write_bytes(damaged(kind))
    message = "not a whole tar file" if kind == "short" else "is not a plain file at the top"
    with pytest.raises(FormatError, match=message):
        unpack(file, folder)
    assert {p.name for p in tmp_path.iterdir()} == {"b.tar", "to"}


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.zip"])
def test_a_compressed_bundle_is_refused(name: str, command: CommandLine) -> None:
    command.refused(2, ("a bundle is not compressed; give NAME.tar",), *COMPILE, name)
    assert not Path(name).exists()


def test_no_tar_is_an_error_of_one_line(command: CommandLine) -> None:
    Path("b.tar").write_bytes(b"no tar")
    command.refused(1, ("b.tar: not a whole tar file",), "run", "b.tar", "--check")
    Path("b.tar").write_bytes(damaged("none"))
    command.refused(1, ("b.tar/manifest.json: cannot be read",), "run", "b.tar", "--check")


@pytest.mark.parametrize("target", ["dpu:DPUCZDX8G", "ascend:Ascend310P3"])
def test_other_targets_are_no_bundle(command: CommandLine, target: str) -> None:
    command.refused(2, ("a tar file holds a build for npuforge's NPU",), *COMPILE, "b.tar", "--target", target)
    assert not Path("b.tar").exists()


def test_outputs_are_compared_by_hand_calculation() -> None:
    expected = np.array([3.0, 4.0, np.nan, np.inf], np.float32)
    assert check_output("y", expected, expected.copy(), "values").right
    near = check_output("y", np.array([3.0, 4.0]), np.array([3.0, 4.0002]), "values")
    assert near.right and near.differing == 1 and abs(near.largest - 0.0002 / 4) < 1e-12
    far = check_output("y", np.array([3.0, 4.0]), np.array([3.0, 4.004]), "values")
    assert not far.right and abs(far.largest - 0.001) < 1e-12
    small = np.array([1e-3, 2e-5], np.float32)
    assert check_output("y", small, small + np.float32(9e-6), "values").right
    assert not check_output("y", small, small + np.float32(1.1e-5), "values").right
    turned = check_output("y", np.array([3.0, 4.0]), np.array([4.0, 3.0]), "cosine")
    assert abs(turned.cosine - 24 / 25) < 1e-12 and turned.right == (LOWEST_COSINE <= 24 / 25)
    assert not check_output("y", np.array([1, 2]), np.array([1, 3]), "values").right
    assert not check_output("y", expected, np.array([3.0, 4.0, 1.0, np.inf]), "values").right
    fewer = check_output("y", expected, expected[:3], "values")
    assert not fewer.right and str(fewer) == "y: NOT as expected, shape expected [4], found [3]"
    assert not check_output("y", expected, None, "cosine").right
    none = check_output("y", expected[:0], expected[:0], "values")
    assert none.right and "nothing was compared" in str(none)
    assert not check_output("y", expected[:0], expected, "values").right
