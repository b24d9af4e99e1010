"""The runtime for a board's processor: `npuforge_core` compiled for 64-bit Arm and run under qemu gives this machine's bytes, on both simulators.

Needs Debian's g++-aarch64-linux-gnu and qemu-user-static; building takes minutes, so these are `full` tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ladder import DATA, IMAGES, ROOT

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from npuforge.board_runtime.session import Session
from npuforge.compile.context import Options
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.pipeline import compile_model
from npuforge.hw_kernels.arch import load

TOOLCHAIN = Path(__file__).with_name("aarch64.cmake")
BUILD = ROOT / ".native-build" / "aarch64"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
pytestmark = [
    pytest.mark.full,
    pytest.mark.data,
    pytest.mark.skipif(not IMAGES.is_dir(), reason=f"{IMAGES} is absent"),
    pytest.mark.skipif(
        shutil.which(COMPILER) is None or shutil.which(EMULATOR) is None,
        reason="needs Debian's g++-aarch64-linux-gnu and qemu-user-static",
    ),
]


@pytest.fixture(scope="module")
def outputs() -> Path:
    """tests/board_runtime/cpp/outputs.cpp for Arm."""
    cmake = str(Path(sys.executable).parent / "cmake")
    options = ["-DNPUFORGE_PYTHON=OFF", "-DNPUFORGE_WERROR=ON", "-DCMAKE_EXE_LINKER_FLAGS=-static"]
    words = [cmake, "-S", str(ROOT / "board_runtime"), "-B", str(BUILD), f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}"]
    subprocess.run([*words, *options], check=True, capture_output=True)
    subprocess.run([cmake, "--build", str(BUILD), "--target", "outputs", "-j", "2"], check=True, capture_output=True)
    return BUILD / "outputs"


def drawn(session: Session) -> dict[str, np.ndarray]:
    """What outputs.cpp feeds."""
    feeds = {}
    for tensor in session.inputs:
        index = np.arange(int(np.prod(tensor.shape)), dtype=np.uint64)
        values = index * np.uint64(2654435761) % np.uint64(255)
        feeds[tensor.name] = values.astype(np.float32).reshape(tensor.shape)
    return feeds


@pytest.mark.parametrize(("precision", "arch"), [("int8", "nf-b4096"), ("bf16", "nf-b4096-bf16")])
@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("yolo_fastest_1.1", "yolo_fastest_1.1"),
        ("yolox_nano_kazuhito", "yolox_nano"),
        ("blazeface_front_128x128", "blazeface"),
    ],
)
def test_arm_gives_the_same_bytes(
    model: str, preset: str, precision: str, arch: str, outputs: Path, tmp_path: Path
) -> None:
    options = Options(
        DATA / "models" / f"{model}.onnx",
        load(arch),
        tmp_path / "build",
        preprocess=load_preprocess(preset),
        calibration=sorted(IMAGES.glob("*.jpg"))[:4] if precision == "int8" else [],
        precision=precision,
    )
    compile_model(options)
    binary = str(tmp_path / "build" / "model.bin")
    for device in ("sim", "csim"):
        session = Session(binary, device)
        expected = session.run(drawn(session))
        done = subprocess.run([EMULATOR, str(outputs), binary, device], stdout=subprocess.PIPE, check=True)
        assert done.stdout == b"".join(np.ascontiguousarray(expected[o.name]).tobytes() for o in session.outputs)
        assert any(np.asarray(value).any() for value in expected.values())
