"""The vendor's command-line tool `xir`, every sub-command, on files of ours. Skipped where it is not installed:

PATH=PREFIX/bin:$PATH LD_LIBRARY_PATH=PREFIX/lib pytest tests/scripts/test_xir_tool.py
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import CommandLine

from npuforge.compile.xir.reader import read_xmodel

pytestmark = pytest.mark.skipif(shutil.which("xir") is None, reason="the vendor's tool `xir` is not on the path")


def xir(*arguments: str | Path) -> str:
    """What a sub-command says; it must neither abort nor complain."""
    done = subprocess.run(["xir", *map(str, arguments)], capture_output=True, text=True, errors="replace")
    assert done.returncode == 0 and "FATAL" not in done.stderr, (arguments, done.returncode, done.stderr[-2000:])
    return done.stdout


@pytest.fixture(params=["own", "dpu"])
def model(request: pytest.FixtureRequest, command: CommandLine) -> Path:
    """A build for our NPU, and the fix form for `vai_c_xir`."""
    if request.param == "own":
        return command.folder / "build" / "model.xmodel"
    arguments = ("--calib", "images", "--preprocess", "net.yaml", "-o", "dpu", "--target", "dpu:DPUCZDX8G_ISA1_B1024")
    assert command("compile", "net.onnx", *arguments).code == 0
    return command.folder / "dpu" / "quantised.xmodel"


def test_subgraph_shows_the_tree(model: Path) -> None:
    root = read_xmodel(model).root
    assert root is not None
    lines = xir("subgraph", model).splitlines()
    shown = [re.fullmatch(r"( *)(\S+)(?: \[device=(\w+)(.*)\])?", line) for line in lines]
    assert all(shown)
    at = {line[2]: (len(line[1]) // 4, line[3]) for line in shown if line}
    assert at["root"] == (0, None)
    for child in root.children:
        assert at[child.name] == (1, child.get("device"))
        assert all(at[leaf.name] == (2, None) for leaf in child.children)
    for child in (c for c in root.children if c.get("device") == "DPU"):
        (line,) = [line for line in lines if line.strip().startswith(f"{child.name} [")]
        assert f"fingerprint=0x{child.get('dpu_fingerprint'):x}" in line and f"DPU={child.get('dpu_name')}" in line


def test_dump_reg_and_dump_bin_give_our_bin(model: Path, tmp_path: Path) -> None:
    children = read_xmodel(model).by_device("DPU")
    text = xir("dump_reg", model)
    xir("dump_bin", model, tmp_path / "parts")
    assert [line.strip() for line in text.splitlines() if line.strip().startswith("subgraph")] == [
        child.name for child in children
    ]
    for child in children:
        image = child.get("reg_id_to_parameter_value")["REG_0"]
        assert f"REG_0 => {len(image)} bytes md5sum= {hashlib.md5(image).hexdigest()}" in text
        assert f"REG_1 => {child.get('reg_id_to_size')['REG_1']}\n" in text
        assert (tmp_path / "parts" / f"{child.name}.mc").read_bytes() == child.get("mc_code")
        assert (tmp_path / "parts" / "REG_0.bin").read_bytes() == (model.parent / "model.bin").read_bytes() == image


def test_graph_and_dump_txt_name_everything(model: Path) -> None:
    stored = read_xmodel(model)
    assert all(f'"{name}" = ' in xir("graph", model) for name in stored.attrs)
    text = xir("dump_txt", model)
    assert re.findall(r'op_name: "([^"]+)"\n +op_type', text) == [op.name for op in stored.ops]


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz's dot is not on the path")
def test_pictures(model: Path, tmp_path: Path) -> None:
    xir("svg", model, tmp_path / "net.svg")
    titles = {element.text for element in ElementTree.parse(tmp_path / "net.svg").iter() if element.text}
    assert all(any(op.name in title for title in titles) for op in read_xmodel(model).ops if op.type == "conv2d-fix")
    xir("png", model, tmp_path / "net.png")
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
