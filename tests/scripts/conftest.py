"""Fixtures of the command-line tests: a tiny network, its images and a good build of it; helper modules importable by their plain names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "board_runtime"))  # the stand-in for a board

from board_stand_in import HEADER as REGISTERS
from command_line import HEAD, CommandLine, save_model, tiny_model
from vendor_stand_in import vendors_side

from npuforge.scripts import cli


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with net.onnx, net.yaml, images/{a,b}.png, truth.json, xnpu_top_hw.h and a good build/."""
    folder = tmp_path_factory.mktemp("tiny")
    save_model(tiny_model(), folder / "net.onnx")
    (folder / "net.yaml").write_text(HEAD)
    (folder / "xnpu_top_hw.h").write_text(REGISTERS)
    (folder / "images").mkdir()
    random = np.random.default_rng(1)
    for name in ("a.png", "b.png"):
        assert cv2.imwrite(str(folder / "images" / name), random.integers(0, 256, (24, 24, 3), dtype=np.uint8))
    truth = {
        "images": [{"id": i, "file_name": f"{n}.png", "width": 24, "height": 24} for i, n in enumerate("ab")],
        "categories": [{"id": 1, "name": "nut"}, {"id": 2, "name": "bolt"}],
        "annotations": [{"id": i, "image_id": i, "category_id": i + 1, "bbox": [2, 3, 12, 10]} for i in range(2)],
    }
    (folder / "truth.json").write_text(json.dumps(truth))
    arguments = ["compile", "net.onnx", "--calib", "images", "--preprocess", "net.yaml", "-o", "build", "--json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.raises(SystemExit) as done:
            cli.main(arguments)
    assert done.value.code == 0
    assert {p.name for p in (folder / "build").iterdir()} == {
        "manifest.json", "model.bin", "model.xmodel", "quantised.npz", "reference.onnx", "summary.json", "sample.npz", "expected.npz",
    }  # fmt: skip
    return folder


@pytest.fixture
def command(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """The command line in a folder of its own that holds a copy of `tiny`."""
    for source in sorted(tiny.rglob("*")):
        target = tmp_path / source.relative_to(tiny)
        if source.is_dir():
            target.mkdir()
        else:
            target.write_bytes(source.read_bytes())
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path, capfd)


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The vendor's side for one test; its folder of tools."""
    with vendors_side(tmp_path / "tools", monkeypatch) as tools:
        yield tools
