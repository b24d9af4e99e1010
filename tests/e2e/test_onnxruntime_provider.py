"""The execution provider in ONNX Runtime, where its headers are: results equal `Session`'s bit for bit, other models are refused, threads, life and end.

pytest tests/e2e/test_onnxruntime_provider.py --onnxruntime-include DIR
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_in_graph_nms import network

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")

from npuforge.board_runtime.session import Session
from npuforge.compile.context import Options
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.onnxruntime.export import LIBRARY, export
from npuforge.compile.pipeline import compile_model
from npuforge.compile.steps.write_files import source_model
from npuforge.hw_kernels.arch import load

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / ".native-build" / "cmake"
DATA = ROOT.parent / "shared" / "data"
NAME, REGISTERED = "NpuforgeExecutionProvider", "npuforge"
SHAPE = (1, 3, 32, 32)


@pytest.fixture(scope="module")
def provider(onnxruntime_include: Path) -> Iterator[None]:
    """The library is built and registered."""
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has no plug-in providers; 1.23 is the first")
    if not (BUILD / "build.ninja").exists():
        pytest.skip(f"{BUILD} is no CMake build folder: run python setup.py build_ext --inplace")
    beside = Path(sys.executable).parent / "cmake"
    tool = str(beside) if beside.exists() else "cmake"
    options = [f"-DONNXRUNTIME_INCLUDE_DIR={onnxruntime_include}"]
    target = [tool, "--build", BUILD, "--target", "npuforge-onnxruntime", "-j", "2"]
    with (BUILD / "tests.lock").open("w") as lock:  # two workers of pytest-xdist would build at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([tool, "-S", ROOT / "board_runtime", "-B", BUILD, *options], check=True, capture_output=True)
        subprocess.run(target, check=True, capture_output=True)
    onnxruntime.register_execution_provider_library(REGISTERED, str(BUILD / "libnpuforge-onnxruntime.so"))
    yield
    gc.collect()
    onnxruntime.unregister_execution_provider_library(REGISTERED)


def compiled(folder: Path, model: onnx.ModelProto, **options: Any) -> Path:
    """The build of a model that is saved beside it as net.onnx."""
    import cv2

    onnx.save(model, folder / "net.onnx")
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    assert cv2.imwrite(str(folder / "a.png"), image)
    choices = Options(folder / "net.onnx", load("nf-b1024"), folder / "build", **options)
    choices.calibration = [folder / "a.png"]
    compile_model(choices)
    return folder / "build"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One NPU partition, CPU operators behind it, outputs of int64 and float32 whose size depends on the data."""
    return compiled(tmp_path_factory.mktemp("provider"), network(0.78))


def session(model: str | Path | bytes, library: Path | None = None, **options: Any) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")  # every node on the provider, or an error
    if library is not None:
        settings.register_custom_ops_library(str(library))
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == NAME]
    settings.add_provider_for_devices(devices, {name: str(value) for name, value in options.items()})
    return onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), settings)


def feed(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


def same(found: list[np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert len(found) == len(expected)
    for y, (name, value) in zip(found, expected.items(), strict=True):
        assert y.dtype == value.dtype and y.shape == value.shape, name
        assert y.tobytes() == value.tobytes(), name


@pytest.mark.parametrize("device", ["sim", "csim"])
def test_equal_to_session(provider: None, build: Path, device: str) -> None:
    running, own = session(build.parent / "net.onnx", build=build, device=device), Session(build, device=device)
    assert running.get_providers()[0] == NAME
    rows = set()
    for seed in range(4):
        expected = own.run({"x": feed(seed)})
        same(running.run(None, {"x": feed(seed)}), expected)
        rows.add(expected["picked"].shape)
    assert len(rows) > 1  # the outputs' sizes did depend on the data


def test_no_box_at_all(provider: None, tmp_path: Path) -> None:
    folder = compiled(tmp_path, network(2.0))
    picked, kept = session(tmp_path / "net.onnx", build=folder).run(None, {"x": feed(1)})
    assert picked.shape == (0, 3) and kept.shape[1] == 0


def test_one_output_of_two(provider: None, build: Path) -> None:
    running = session(build.parent / "net.onnx", build=build)
    (kept,) = running.run(["kept"], {"x": feed(2)})
    assert kept.tobytes() == Session(build).run({"x": feed(2)})["kept"].tobytes()


@pytest.fixture
def named(provider: None) -> None:
    """`providers=[...]` takes the name of a plug-in."""
    if NAME not in onnxruntime.get_available_providers():
        pytest.skip(f"onnxruntime {onnxruntime.__version__} takes plug-in providers by their device only")


def test_by_the_provider_s_name_alone(named: None, build: Path) -> None:
    running = onnxruntime.InferenceSession(
        str(build.parent / "net.onnx"),
        providers=[NAME, "CPUExecutionProvider"],
        provider_options=[{"build": str(build)}, {}],
    )
    same(running.run(None, {"x": feed(3)}), Session(build).run({"x": feed(3)}))


def test_model_from_bytes_and_the_build_s_own_model(provider: None, build: Path) -> None:
    data = (build.parent / "net.onnx").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    expected = Session(build).run({"x": feed(4)})
    for text in (digest, digest.upper()):  # tools write either
        same(session(data, build=build, model_sha256=text).run(None, {"x": feed(4)}), expected)
    same(session(build / "reference.onnx", build=build).run(None, {"x": feed(4)}), expected)


def test_one_session_in_many_threads(provider: None, build: Path) -> None:
    running, own = session(build.parent / "net.onnx", build=build, threads=2), Session(build)
    expected = [own.run({"x": feed(seed)}) for seed in range(6)]
    with ThreadPoolExecutor(4) as pool:
        for index, found in enumerate(pool.map(lambda i: running.run(None, {"x": feed(i % 6)}), range(60))):
            same(found, expected[index % 6])


def test_sixty_sessions_keep_no_memory(provider: None, build: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def once() -> None:
        session(build.parent / "net.onnx", build=build).run(None, {"x": feed(5)})

    for _ in range(20):
        once()
    gc.collect()
    before = resident()
    for _ in range(60):
        once()
    gc.collect()
    assert resident() - before < 10e6  # kept alive, sixty hold 48 MB


def test_shape_that_was_not_compiled(provider: None, tmp_path: Path) -> None:
    """The model leaves height and width open, the build has one size; the session goes on after the refusal."""
    weight = numpy_helper.from_array(np.random.default_rng(1).normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, "h", "w"]) for n, c in (("x", 3), ("y", 4))]
    node = helper.make_node("Conv", ["x", "w"], ["y"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "open", values[:1], values[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder = compiled(tmp_path, model, shapes={"x": SHAPE})
    running = session(tmp_path / "net.onnx", build=folder)
    with pytest.raises(Exception, match=r"'x'.*1x3x32x32.*1x3x16x32"):
        running.run(None, {"x": feed(0, (1, 3, 16, 32))})
    same(running.run(None, {"x": feed(0)}), Session(folder).run({"x": feed(0)}))


def test_channels_last(provider: None, tmp_path: Path) -> None:
    """Inputs and outputs N, H, W, C in the model are N, H, W, C to the application."""
    weight = numpy_helper.from_array(np.random.default_rng(1).normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], "a", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["a", "w"], ["b"], "c", kernel_shape=[3, 3]),
        helper.make_node("Transpose", ["b"], ["y"], "b", perm=[0, 2, 3, 1]),
    ]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, 32, 28, 3]), ("y", [1, 30, 26, 4]))
    ]
    graph = helper.make_graph(nodes, "last", ends[:1], ends[1:], [weight])
    folder = compiled(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    x = feed(3, (1, 32, 28, 3))
    found, own = session(tmp_path / "net.onnx", build=folder).run(None, {"x": x}), Session(folder)
    assert own.inputs[0].nhwc
    same(found, own.run({"x": x}))
    reference = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    (expected,) = reference.run(None, {"x": x})
    assert np.abs(found[0] - expected).mean() < 0.05 * np.abs(expected).mean()


def test_network_with_own_operators(provider: None, onnxruntime_include: Path, tmp_path: Path) -> None:
    """The exported library says what the operators are, the provider computes them."""
    weight = numpy_helper.from_array(np.random.default_rng(1).normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "c", kernel_shape=[3, 3]),
        helper.make_node("CustomGELU", ["c"], ["g"], "g", domain="com.example"),
        helper.make_node("LeakyReluMask", ["g"], ["y", "mask"], "m", domain="npuforge", alpha=0.2),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "mask")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1), helper.make_opsetid("npuforge", 1)]
    graph = helper.make_graph(nodes, "own", inputs, outputs, [weight])
    folder = compiled(tmp_path, helper.make_model(graph, opset_imports=opsets, ir_version=9))
    made = export(Options(tmp_path / "net.onnx", load("nf-b1024"), tmp_path / "ops"), onnxruntime_include)
    assert made.compiled
    running = session(tmp_path / "net.onnx", tmp_path / "ops" / LIBRARY, build=folder)
    same(running.run(None, {"x": feed(6)}), Session(folder).run({"x": feed(6)}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 3}, "provider option 'speed': expected build, device, threads, level, board or model_sha256"),
        ({"threads": "two"}, "provider option threads: expected a whole number from 1, found 'two'"),
        ({"threads": 0}, "expected a whole number from 1, found '0'"),
        ({"device": "abacus"}, "device: expected sim, csim or uio, found 'abacus'"),
        ({"level": "mmx"}, "mmx"),
        ({"build": "/nowhere"}, "/nowhere/manifest.json: cannot be read"),
        ({"model_sha256": "12ab"}, "model_sha256 is not the model that .* was compiled from"),
    ],
    ids=["unknown", "threads", "no thread", "device", "level", "build", "digest"],
)
def test_bad_options(provider: None, build: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        session(build.parent / "net.onnx", **{"build": build, **options})


def test_without_a_build_nothing_is_taken(named: None, build: Path) -> None:
    running = onnxruntime.InferenceSession(str(build.parent / "net.onnx"), providers=[NAME, "CPUExecutionProvider"])
    expected = onnxruntime.InferenceSession(str(build.parent / "net.onnx"), providers=["CPUExecutionProvider"])
    for y, value in zip(running.run(None, {"x": feed(7)}), expected.run(None, {"x": feed(7)}), strict=True):
        assert y.tobytes() == value.tobytes()


def test_another_model_is_refused(provider: None, build: Path, tmp_path: Path) -> None:
    onnx.save(network(0.79), tmp_path / "other.onnx")
    message = r"other.onnx is not the model that .*build was compiled from: sha256 expected \w{16}… \(net.onnx\), found"
    with pytest.raises(Exception, match=message):
        session(tmp_path / "other.onnx", build=build)
    with pytest.raises(Exception, match="given as bytes, so its file cannot be compared"):
        session((build.parent / "net.onnx").read_bytes(), build=build)


def test_damaged_builds(provider: None, build: Path, tmp_path: Path) -> None:
    for name, message in (
        ("model.bin", "sha256 expected .* changed or is damaged"),
        ("manifest.json", "manifest.json"),
    ):
        shutil.copytree(build, tmp_path / name)
        data = bytearray((tmp_path / name / name).read_bytes())
        data[len(data) // 2] ^= 0x80
        (tmp_path / name / name).write_bytes(data)
        with pytest.raises(Exception, match=message):
            session(build.parent / "net.onnx", build=tmp_path / name)


def test_a_build_for_a_dpu(provider: None, build: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 1, "target": "DPUCZDX8G_ISA1_B4096", "files": {}}')
    with pytest.raises(
        Exception, match="a build for DPUCZDX8G_ISA1_B4096, which runs with `npuforge run --device dpu`"
    ):
        session(build.parent / "net.onnx", build=tmp_path)


def external(folder: Path) -> Path:
    """A network whose weights are in a second file."""
    model = network(0.78)
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="net.weights", size_threshold=64)
    return folder / "net.onnx"


def test_manifest_names_the_model_and_its_weights(tmp_path: Path) -> None:
    path = external(tmp_path)
    digests = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (path, tmp_path / "net.weights")}
    expected = {"file": "net.onnx", "sha256": digests["net.onnx"], "external": {"net.weights": digests["net.weights"]}}
    assert source_model(path) == expected


def test_other_weights_are_refused(provider: None, tmp_path: Path) -> None:
    folder = compiled(tmp_path, network(0.78))
    shutil.rmtree(folder)
    path = external(tmp_path)
    compile_model(Options(path, load("nf-b1024"), folder, calibration=[tmp_path / "a.png"]))
    same(session(path, build=folder).run(None, {"x": feed(8)}), Session(folder).run({"x": feed(8)}))
    data = bytearray((tmp_path / "net.weights").read_bytes())
    data[10] ^= 1
    (tmp_path / "net.weights").write_bytes(data)
    with pytest.raises(Exception, match=r"net.weights: these weights are not those that .* was compiled from"):
        session(path, build=folder)


def test_weights_that_an_application_could_replace(provider: None, tmp_path: Path) -> None:
    model = network(0.78)
    model.graph.input.append(helper.make_tensor_value_info("two", TensorProto.INT64, []))
    folder = compiled(tmp_path, model)
    with pytest.raises(Exception, match="input 'two' has a default that an application may replace"):
        session(tmp_path / "net.onnx", build=folder)


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "models").is_dir(), reason="needs ../shared/data (docs/data.md)")
def test_yolo_fastest(provider: None, tmp_path: Path) -> None:
    model = DATA / "models" / "yolo_fastest_1.1.onnx"
    images = sorted((DATA / "tiny_coco" / "train2017").glob("*.jpg"))[:2]
    record = load_preprocess("yolo_fastest_1.1")
    compile_model(Options(model, load("nf-b4096"), tmp_path, preprocess=record, calibration=images))
    running, own = session(model, build=tmp_path), Session(tmp_path)
    (given,) = running.get_inputs()
    x = np.random.default_rng(0).uniform(0, 1, given.shape).astype(np.float32)
    same(running.run(None, {given.name: x}), own.run({given.name: x}))
