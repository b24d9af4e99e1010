"""Builds and runs the small C++ programs: unit tests, the allocation counter, the thread exercise."""

from __future__ import annotations

import ast
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from tiny_model import TinyModel

from npuforge.board_runtime import _native
from npuforge.compile.xir.validate import operator_table

ROOT = Path(__file__).parents[2]
# Built-in operators that the vendor's CPU task has itself (Vitis AI 3.5, vai_library/cpu_task/ops).
VENDOR_HAS = set(
    [
        "add",
        "concat",
        "const",
        "data",
        "data-fix",
        "div",
        "exp",
        "fix2float",
        "float2fix",
        "leaky-relu",
        "matmul",
        "max",
        "min",
        "mul",
        "reduction_max",
        "reduction_sum",
        "reshape",
        "sigmoid",
        "softmax",
        "strided_slice",
        "sub",
        "tanh",
        "transpose",
    ]
)
BUILD = ROOT / ".native-build" / "cmake"


@pytest.fixture(scope="module")
def programs() -> Path:
    """The build folder with all test programs in it."""
    if not (BUILD / "build.ninja").exists():
        pytest.skip(f"{BUILD} is no CMake build folder: run python setup.py build_ext --inplace")
    cmake = Path(sys.executable).parent / "cmake"
    tool = str(cmake) if cmake.exists() else "cmake"
    subprocess.run(
        [tool, "--build", str(BUILD), "--target", "test_programs", "-j", "2"], check=True, capture_output=True
    )
    return BUILD


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "model.bin"
    path.write_bytes(TinyModel(second=True).build())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_memory", "test_plan", "test_border", "test_whole_numbers"])
def test_unit(programs: Path, name: str) -> None:
    subprocess.run([programs / name], check=True)


@pytest.mark.slow
def test_sha256(programs: Path, tmp_path: Path) -> None:
    """As Python's hashlib, over every length around a block's end and one that is read in several pieces."""
    contents = [bytes(range(256))[:n] for n in range(130)] + [bytes(i * i % 251 for i in range(200_000))]
    files = [tmp_path / str(n) for n in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    done = subprocess.run([programs / "digest", *files], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [hashlib.sha256(content).hexdigest() for content in contents]
    refused = subprocess.run([programs / "digest", tmp_path / "none"], capture_output=True, text=True)
    assert refused.returncode == 1 and refused.stderr == f"{tmp_path / 'none'}: cannot be read\n"


@pytest.mark.slow
@pytest.mark.parametrize(("device", "threads"), [("sim", 1), ("sim", 2), ("csim", 1)])
def test_no_allocation_after_warm_up(programs: Path, model: Path, device: str, threads: int) -> None:
    """Interposed malloc and new, counted over the C++ calls of a session and of a runner."""
    command = [programs / "count_allocations", model, device, str(threads), "20"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    counted = dict(zip(lines[::2], map(int, lines[1::2]), strict=True))
    assert counted.pop("open") > 100
    assert counted == {"session": 0, "runner": 0}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["sim", "csim"])
def test_threads(programs: Path, model: Path, device: str) -> None:
    subprocess.run([programs / "exercise", model, device, "20"], check=True)


@pytest.mark.slow
def test_random_damage(programs: Path, model: Path) -> None:
    subprocess.run([programs / "damage", model, "2000"], check=True)


@pytest.mark.full
def test_twenty_thousand_damaged_files_under_sanitizers(model: Path, tmp_path: Path) -> None:
    """Header, table, JSON page, sections, lengths; loaded, prepared and run with the address and undefined-behaviour sanitizers on. Builds the core anew."""
    cmake = Path(sys.executable).parent / "cmake"
    tool = str(cmake) if cmake.exists() else "cmake"
    options = ["-DNPUFORGE_SANITIZE=address,undefined", "-DNPUFORGE_PYTHON=OFF", "-DNPUFORGE_AREAS=sim"]
    sources = ["-S", ROOT / "board_runtime", "-B", tmp_path, "-G", "Ninja", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"]
    subprocess.run([tool, *sources, *options], check=True, capture_output=True)
    subprocess.run([tool, "--build", tmp_path, "--target", "damage", "-j", "2"], check=True, capture_output=True)
    done = subprocess.run([tmp_path / "damage", model, "20000"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


@pytest.mark.slow
def test_runner_plug_in(programs: Path, model: Path) -> None:
    """What the vendor's VART would load, against stand-ins of its classes: buffers of every kind, batches, threads, refusals."""
    library = programs / "libnpuforge-runner-stand-in.so"
    done = subprocess.run([programs / "plugin_exercise", library, model, "0"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr


@pytest.mark.slow
def test_runner_plug_in_on_the_cpu(programs: Path, model: Path) -> None:
    """A CPU child whose result goes out in two forms; int8 and float32 buffers on either side."""
    library = programs / "libnpuforge-runner-stand-in.so"
    done = subprocess.run([programs / "cpu_exercise", library, model, "1"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr


def types_on_the_cpu() -> set[str]:
    """All operator types that the writer can give to a CPU child: what its sources name, and the CPU operators that ONNX or we define."""
    words = {
        node.value
        for file in ("writer.py", "cpu_ops.py", "leaving.py", "batch_axis.py")
        for node in ast.walk(ast.parse((ROOT / "compile" / "xir" / file).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    built_in = (words & set(operator_table())) - {"upload", "download", "shape", "scale"}  # the NPU's; attributes
    border = {word for word in words if word.startswith("npuforge::") and word != "npuforge::"}
    assert {"add", "identity", "fix2float"} <= built_in and {"npuforge::Cast", "npuforge::Quantize"} <= border
    return built_in | border | {op if "::" in op else f"onnx::{op}" for op in _native.cpu_operators()}


@pytest.mark.slow
def test_operator_plug_ins(programs: Path, tmp_path: Path) -> None:
    """What the vendor's CPU task would load per operator type, against stand-ins; every type that the writer gives has a library."""
    library = Path(shutil.copy(programs / "libnpuforge-ops-stand-in.so", tmp_path))
    subprocess.run([programs / "op-links-stand-in", library], check=True)
    done = subprocess.run([programs / "op_exercise", tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    wanted = {f"libvart_op_imp_{kind.replace(':', '_')}.so" for kind in types_on_the_cpu() - VENDOR_HAS}
    assert not wanted - names
    assert len(wanted) > 150 and "libvart_op_imp_npuforge__Cast.so" in wanted
