"""`--device dpu`: compiled by a stand-in for `vai_c_xir`, run on stand-ins for the vendor's Python modules (tests/board_runtime/vendor/python).

The real modules, with our plug-in in the DPU's place, are tests/e2e/test_vart_application.py's.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import CommandLine
from onnx import TensorProto, helper, numpy_helper
from vendor_stand_in import vendors_side

from npuforge.board_runtime.compiled_folder import CompiledFolder
from npuforge.board_runtime.devices import open_session
from npuforge.board_runtime.dpu import left
from npuforge.board_runtime.session import TensorSpec
from npuforge.compile import pipeline
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import DeviceError, FormatError, UsageError
from npuforge.compile.xir.model import Attr, XTensor, to_message
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels import arch
from npuforge.scripts import cli

COMPILE = ("compile", "net.onnx", "--calib", "images", "--preprocess", "net.yaml", "-o", "dpu", "--target")
TARGET = "dpu:DPUCZDX8G_ISA1_B1024"


@pytest.fixture(scope="module")
def compiled(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build for a DPU, made by the command line."""
    folder = tmp_path_factory.mktemp("compiled")
    arguments = [
        "compile",
        str(tiny / "net.onnx"),
        "--calib",
        str(tiny / "images"),
        "--preprocess",
        str(tiny / "net.yaml"),
    ]
    with (
        pytest.MonkeyPatch.context() as patch,
        vendors_side(folder / "tools", patch),
        pytest.raises(SystemExit) as done,
    ):
        cli.main([*arguments, "-o", str(folder / "dpu"), "--target", TARGET])
    assert done.value.code == 0
    return folder / "dpu"


@pytest.fixture
def dpu(command: CommandLine, compiled: Path, vendor: Path) -> CommandLine:
    """A working folder with that build in dpu/."""
    shutil.copytree(compiled, command.folder / "dpu")
    return command


def test_what_the_compiler_made(dpu: CommandLine) -> None:
    report = json.loads((dpu.folder / "dpu" / "dpu.json").read_text())
    made = report["compiler"]
    assert (made["ran"], made["subgraphs"], made["dpu_subgraphs"]) == (True, 3, 1)
    assert made["cpu_subgraphs"] == 1  # the log doesn't say it
    assert made["fingerprints"] == ["0x0101000056010402"] and made["dpu_names"] == ["DPUCZDX8G_ISA1_B1024"]
    assert made["unlike_target"] == "" and not [n for n in report["notices"] if "fingerprint" in n]


def test_the_usual_commands(dpu: CommandLine) -> None:
    """What leaves the DPU has the integers' bits; report, mAP and times as on any device."""
    compared = dpu(
        "compare", "dpu", "images", "--device", "dpu", "--truth", "truth.json", "--report", "page.html", "--json"
    )
    assert compared.code == 0, compared
    report = json.loads(compared.out)
    assert report["device"] == "dpu" and report["device_equality"] == {
        "values_compared": 2 * 7 * 8 * 8,
        "values_differing": 0,
    }
    assert report["arch"] == {"name": "DPUCZDX8G_ISA1_B1024"} and report["fingerprint"] == "0x0101000056010402"
    assert set(report["accuracy"]) == {"float", "integer", "device"}
    assert "that leave the DPU" in (dpu.folder / "page.html").read_text()
    ran = dpu("run", "dpu", "images", "--device", "dpu", "--tensors", "out.npz", "--profile", "trace.json", "--json")
    assert ran.code == 0 and set(json.loads(ran.out)) == {"a.png", "b.png"}
    events = json.loads((dpu.folder / "trace.json").read_text())["traceEvents"]
    assert {event.get("cat") for event in events} == {None, "run", "NPU", "CPU"}
    evaluated = dpu("evaluate", "dpu", "--images", "images", "--truth", "truth.json", "--device", "dpu", "--json")
    metrics = json.loads(evaluated.out)
    assert evaluated.code == 0 and metrics["device"] == metrics["integer"]
    timed = dpu("bench", "dpu", "--device", "dpu", "--runs", "4", "--json")
    assert timed.code == 0 and json.loads(timed.out)["timing"]["median"] > 0
    assert dpu("report", "dpu", "-o", "own.html").code == 0
    line = "vai_c_xir: 3 subgraphs, 1 DPU, 1 CPU, fingerprints 0x0101000056010402"
    assert line in (dpu.folder / "own.html").read_text() and line in (dpu.folder / "page.html").read_text()


def test_threads_share_a_session(dpu: CommandLine) -> None:
    from concurrent.futures import ThreadPoolExecutor

    session = open_session(dpu.folder / "dpu", "dpu", threads=2)
    random = np.random.default_rng(2)
    shape = session.inputs[0].shape
    feeds = [random.uniform(0, 255, shape).astype(np.float32) for _ in range(8)]
    alone = [session.run([feed]) for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda feed: session.run([feed]), feeds))
    for one, other in zip(alone, together, strict=True):
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])
    assert len({value.tobytes() for result in alone for value in result.values()}) > 1


def test_a_build_for_another_device_is_refused(dpu: CommandLine) -> None:
    for device in ("sim", "csim"):
        words = (f"--device {device}", "compiled for DPUCZDX8G_ISA1_B1024", "--device dpu")
        dpu.refused(2, words, "run", "dpu", "images", "--device", device)
    dpu.refused(2, ("--arch", "fingerprints"), "run", "dpu", "images", "--device", "dpu", "--arch", "nf-b4096")
    dpu.refused(2, ("--device board", "sim, csim, uio, dpu"), "run", "dpu", "images", "--device", "board")


def test_without_the_compiled_file(dpu: CommandLine) -> None:
    (dpu.folder / "dpu" / "model.xmodel").unlink()
    manifest = dpu.folder / "dpu" / "manifest.json"
    listed = json.loads(manifest.read_text())
    del listed["files"]["model.xmodel"]
    manifest.write_text(json.dumps(listed))
    dpu.refused(
        1, ("model.xmodel: no such file", "vai_c_xir -x quantised.xmodel"), "run", "dpu", "images", "--device", "dpu"
    )


def changed(dpu: CommandLine, child: int, **attrs: Attr) -> None:
    file = dpu.folder / "dpu" / "model.xmodel"
    model = read_xmodel(file)
    assert model.root is not None
    model.root.children[child].attrs |= attrs
    file.write_bytes(to_message(model).SerializeToString())


def test_what_the_vendors_runtime_says_when_it_ends_the_process(dpu: CommandLine) -> None:
    """The process that tries ends, not ours."""
    changed(dpu, 1, dpu_fingerprint=Attr("uint64", 0xBAD))
    with pytest.raises(
        DeviceError, match="refuses it: fingerprint check failure: model fingerprint 0xbad is un-matched"
    ):
        open_session(dpu.folder / "dpu", "dpu")
    changed(dpu, 1, dpu_fingerprint=Attr("uint64", 1), runner=Attr("map_string_2_string", {"run": "libother.so"}))
    with pytest.raises(DeviceError, match=r"plugin cannot open library .libother\.so.!"):
        open_session(dpu.folder / "dpu", "dpu")


def test_a_build_without_an_npu_partition(vendor: Path, tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 6, 5]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("CumSum", ["x", "axis"], ["y"])], "net", values[:1], values[1:])
    graph.initializer.append(numpy_helper.from_array(np.array(1), "axis"))
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "net.onnx"
    )
    np.savez(tmp_path / "0.npz", x=np.zeros((1, 4, 6, 5), np.float32))
    options = Options(
        tmp_path / "net.onnx", arch.load("nf-b1024"), tmp_path / "build", calibration=[tmp_path / "0.npz"]
    )
    pipeline.compile_model(options)
    with pytest.raises(FormatError, match=r"left all of the network to the CPU, .* run the build with --device sim"):
        open_session(tmp_path / "build", "dpu")


def test_files_that_do_not_fit(dpu: CommandLine) -> None:
    file = dpu.folder / "dpu" / "model.xmodel"
    good = file.read_bytes()
    file.write_bytes(good[:-9])
    with pytest.raises(FormatError, match=r"model\.xmodel"):
        open_session(dpu.folder / "dpu", "dpu")
    model = read_xmodel(dpu.folder / "dpu" / "quantised.xmodel")
    file.write_bytes(to_message(model).SerializeToString())
    with pytest.raises(FormatError, match="no subgraph for a DPU"):
        open_session(dpu.folder / "dpu", "dpu")
    file.write_bytes(good)
    model = read_xmodel(file)
    model.attrs["return_ops"] = Attr("string_vec", ["nowhere"])
    file.write_bytes(to_message(model).SerializeToString())
    with pytest.raises(FormatError, match="no op gives 'nowhere', which return_ops names for output y"):
        open_session(dpu.folder / "dpu", "dpu")


def test_inputs_of_another_shape(dpu: CommandLine) -> None:
    session = open_session(dpu.folder / "dpu", "dpu")
    with pytest.raises(FormatError, match=r"input x: expected shape \[1, 3, 16, 16\], found \[1, 3, 8, 8\]"):
        session.run([np.zeros((1, 3, 8, 8), np.float32)])
    with pytest.raises(UsageError, match="expected the inputs x, found other"):
        session.run({"other": np.zeros((1, 3, 16, 16), np.float32)})


def test_what_is_missing(dpu: CommandLine, vendor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npuforge.board_runtime.dpu.plug_in_places", lambda: [vendor / "elsewhere"])
    dpu.refused(1, ("libnpuforge-runner.so", "LD_LIBRARY_PATH", "vart"), "run", "dpu", "images", "--device", "dpu")
    real = __import__("importlib").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "vart" else real(name, *rest))
    dpu.refused(1, ("--device dpu", "module vart is not installed", "VART"), "run", "dpu", "images", "--device", "dpu")


def test_another_fingerprint_is_a_notice(command: CommandLine, vendor: Path) -> None:
    result = command(*COMPILE, "dpu:DPUCZDX8G_ISA1_B2304")
    assert result.code == 0
    assert (
        "carries the fingerprint 0x0101000056010402, DPUCZDX8G_ISA1_B2304 of the vendor's list has 0x0101000056010405"
        in result.err
    )
    assert "they differ in feature code (0x56010402 and 0x56010405)" in result.err


def test_outputs_without_an_axis_and_with_open_ones() -> None:
    """XIR has no scalars, and no shapes that the data decide."""
    folder = CompiledFolder(Path(), "net", "", [], [], {})
    one = left(np.ones(1, np.float32), XTensor("sum", [1], "FLOAT", 32), spec("sum", ()), folder)
    assert one.shape == () and one == 1
    rows = np.array([[0, 1, 2], [3, 4, 5], [-1, -1, -1], [-1, -1, -1]], np.float32)
    found = left(rows, XTensor("boxes", [4, 3], "FLOAT", 32), spec("boxes", (-1, 3)), folder)
    np.testing.assert_array_equal(found, rows[:2])
    assert left(rows[2:], XTensor("boxes", [2, 3], "FLOAT", 32), spec("boxes", (-1, 3)), folder).shape == (0, 3)


def spec(name: str, shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(name, shape, "float32", False, False, None)
