"""The C++ testbench that Vitis' csim_design would run, here with g++, on both shipped archs; and that it can fail."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hls_support import HLS, ROOT

from npuforge.hw_kernels.isa.generate import header_text


def build_and_run(folder: Path, arch: dict[str, int], top: Path) -> subprocess.CompletedProcess[str]:
    (folder / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
    defines = [f"-DNPU_PIXEL_PARALLEL={arch['pixel_parallel']}", f"-DNPU_SRAM_BYTES={arch['sram_bytes']}"]
    sources = [str(top), str(HLS / "testbench" / "tb_npu_top.cpp")]
    flags = [
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        str(folder),
        "-I",
        str(top.parent),
        "-I",
        str(HLS),
    ]
    subprocess.run(["g++", *flags, *defines, *sources, "-o", str(folder / "tb")], check=True)
    return subprocess.run([str(folder / "tb")], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["nf-b1024", "nf-b4096"])
def test_testbench_passes(name: str, tmp_path: Path) -> None:
    arch = json.loads((ROOT / "hw_kernels" / "arch" / f"{name}.json").read_text(encoding="utf-8"))
    result = build_and_run(tmp_path, arch, HLS / "npu_top.cpp")
    assert (result.returncode, result.stdout) == (0, "20 of 20 executions right\n")


def test_testbench_fails_on_a_missing_rounding(tmp_path: Path) -> None:
    for path in HLS.glob("*.[hc]pp"):
        text = path.read_text(encoding="utf-8")
        if path.name == "requantise.hpp":
            assert text.count("? (int64_t)1 << (shift - 1) :") == 1
            text = text.replace("? (int64_t)1 << (shift - 1) :", "? (int64_t)0 :")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    result = build_and_run(tmp_path, {"pixel_parallel": 2, "sram_bytes": 524288}, tmp_path / "npu_top.cpp")
    assert result.returncode == 1 and "20 of 20" not in result.stdout
