"""Networks with an image and further inputs: calibration, run, compare and a recorded reference, against ONNX Runtime on the same arrays; refusals name the input."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from command_line import CommandLine, Result
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import InputError, UnsupportedError
from npuforge.compile.ir.graph import Graph, TensorInfo
from npuforge.compile.ir.image import prepare
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.steps.preprocessing import complete
from npuforge.scripts import cli

RNG = np.random.default_rng(5)
FACTOR = np.array([[0.5, 3.0]], np.float32)
RECORD = "mean: 127.5\nstd: 64\ncolor: BGR\nhead: {kind: none}\n"


def run(*arguments: object) -> Result:
    """One call of the command line."""
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        pytest.raises(SystemExit) as done,
    ):
        cli.main([str(a) for a in arguments])
    assert isinstance(done.value.code, int)
    return Result(done.value.code, out.getvalue(), err.getvalue())


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image and a guide map meet on the NPU; behind the last convolution a float factor and an integer shift."""
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], pads=[1] * 4, kernel_shape=[3, 3], name="conv1"),
        helper.make_node("Conv", ["guide", "w2"], ["b"], kernel_shape=[1, 1], name="conv2"),
        helper.make_node("Add", ["a", "b"], ["c"], name="join"),
        helper.make_node("Conv", ["c", "w3"], ["d"], kernel_shape=[1, 1], name="conv3"),
        helper.make_node("Reshape", ["factor", "four"], ["f"], name="reshape"),
        helper.make_node("Mul", ["d", "f"], ["e"], name="scale"),
        helper.make_node("Cast", ["shift"], ["s"], to=TensorProto.FLOAT, name="cast"),
        helper.make_node("Add", ["e", "s"], ["y"], name="move"),
    ]
    inputs = {"guide": (1, 5, 12, 16), "image": (1, 3, 12, 16), "factor": (1, 2)}
    graph = helper.make_graph(
        nodes,
        "several",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
        + [helper.make_tensor_value_info("shift", TensorProto.INT64, (1,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2, 12, 16))],
        [
            numpy_helper.from_array(v, n)
            for n, v in (
                ("w1", weights(8, 3, 3, 3)),
                ("w2", weights(8, 5, 1, 1)),
                ("w3", weights(2, 8, 1, 1)),
                ("four", np.array([1, 2, 1, 1])),
            )
        ],
    )
    path = tmp_path_factory.mktemp("several") / "several.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two images with their guide and shift beside them, and a sample that is a .npz alone."""
    folder = tmp_path_factory.mktemp("samples")
    record = Preprocess(16, 12, color="BGR", mean=[127.5] * 3, std=[64.0] * 3)
    for number in range(3):
        picture = folder / f"s{number}.png"
        assert cv2.imwrite(str(picture), RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8))
        guide = RNG.normal(size=(1, 5, 12, 16)).astype(np.float32)
        arrays = {"guide": guide, "shift": np.array([number])}
        if number == 2:
            arrays |= {"image": prepare(picture, record)[1], "factor": FACTOR * 2}
            picture.unlink()
        np.savez(folder / f"s{number}.npz", **arrays)  # type: ignore[arg-type]
    (folder / "record.yaml").write_text(RECORD)
    np.save(folder / "factor.npy", FACTOR)
    return folder


@pytest.fixture(scope="module")
def build(network: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("build") / "b"
    done = run(
        "compile", network, "--calib", samples, "--preprocess", samples / "record.yaml", *factor(samples), "-o", output
    )
    assert done.code == 0, done.err
    assert "input image takes the image; guide, factor, shift: from --input" in done.err
    return output


def factor(samples: Path) -> list[object]:
    return ["--input", f"factor={samples / 'factor.npy'}"]


def test_run_is_what_onnx_runtime_gives_up_to_quantisation(
    network: Path, samples: Path, build: Path, tmp_path: Path
) -> None:
    done = run("run", build, samples, *factor(samples), "--tensors", tmp_path / "t.npz")
    assert done.code == 0, done.err
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    record = Preprocess(16, 12, color="BGR", mean=[127.5] * 3, std=[64.0] * 3)
    with np.load(tmp_path / "t.npz") as found:
        assert sorted(found.files) == ["s0.png:y", "s1.png:y", "s2.npz:y"]
        for name in found.files:
            path = samples / name.removesuffix(":y")
            feeds = {"factor": FACTOR, **np.load(path.with_suffix(".npz"))}
            if path.suffix == ".png":
                feeds["image"] = prepare(path, record)[1]
            expected = session.run(["y"], feeds)[0]
            error = np.abs(found[name] - expected).max() / np.ptp(expected)
            assert error < 0.03, name


def test_compare_and_a_recorded_reference(network: Path, samples: Path, build: Path, tmp_path: Path) -> None:
    live = run("compare", build, samples, *factor(samples))
    assert live.code == 0 and "0 of" in live.out, live.err
    record = samples / "record.yaml"
    done = run(
        "reference", "record", network, samples, "--preprocess", record, *factor(samples), "-o", tmp_path / "r.npz"
    )
    assert done.code == 0, done.err
    again = run("compare", build, samples, *factor(samples), "--reference", tmp_path / "r.npz")
    assert again.code == 0, again.err
    np.save(tmp_path / "other.npy", FACTOR + 1)
    other = run(
        "compare", build, samples, "--input", f"factor={tmp_path / 'other.npy'}", "--reference", tmp_path / "r.npz"
    )
    assert other.code == 1 and "--input factor had sha256" in other.err


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ([], 1, "input 'factor' (float32 [1, 2]) has no value; give it once with --input factor=FILE.npy"),
        (["--input", "factor"], 2, "--input factor: expected NAME=FILE.npy"),
        (["--input", "factor=nowhere.npy"], 1, "nowhere.npy cannot be read (No such file or directory)"),
        (["--input", "factor={samples}/s0.npz"], 1, "holds several arrays"),
        (["--input", "factor={samples}/record.yaml"], 1, "cannot be read"),
        (
            ["--input", "other={samples}/factor.npy"],
            1,
            "the network has no input 'other'; its inputs are guide, image, factor",
        ),
        (
            ["--input", "shift={samples}/factor.npy", "--input", "factor={samples}/factor.npy"],
            0,
            "",
        ),  # the sample's own go first
        (["--input", "factor={samples}/wide.npy"], 1, "input 'factor' takes float32 [1, 2], found float32 [1, 3]"),
    ],
)
def test_wrong_inputs_are_named(build: Path, samples: Path, change: list[str], code: int, message: str) -> None:
    np.save(samples / "wide.npy", np.ones((1, 3), np.float32))
    done = run("run", build, samples / "s0.png", *[text.format(samples=samples) for text in change])
    assert done.code == code and message in done.err, done.err


def graph(**inputs: tuple[tuple[int, ...], str]) -> Graph:
    tensors = {n: TensorInfo(n, shape, dtype) for n, (shape, dtype) in inputs.items()}
    return Graph("g", [], tensors, {}, list(inputs), [])


def test_which_input_takes_the_image() -> None:
    two = graph(a=((1, 3, 8, 8), "float32"), b=((1, 3, 8, 8), "float32"))
    with pytest.raises(InputError, match=r"say with `input: NAME` in --preprocess which of a, b takes the image"):
        complete(two, None)
    assert complete(two, Preprocess(input="b"))[0].input == "b"
    with pytest.raises(InputError, match=r"no input 'c'; its inputs are a, b"):
        complete(two, Preprocess(input="c"))
    none = graph(a=((1, 4), "float32"), b=((1, 3, 8, 8), "int64"))
    with pytest.raises(
        UnsupportedError, match=r"a float32 \[1, 4\], b int64 \[1, 3, 8, 8\], expected one that takes an image"
    ):
        complete(none, Preprocess())
    record, notices = complete(none, None)
    assert not record.takes_image and "a float32 [1, 4], b int64 [1, 3, 8, 8]" in notices[0]


def test_a_sample_without_an_image_is_drawn(command: CommandLine) -> None:
    """One input, given as the tensor that ONNX Runtime takes: the same detections as from the image, drawn on what the tensor shows."""
    record = Preprocess(16, 16)
    name = onnx.load("net.onnx").graph.input[0].name
    np.savez("t.npz", **{name: prepare("images/a.png", record)[1]})
    from_tensor = command("run", "build", "t.npz", "--draw", "out", "--json", "--score", "0")
    assert from_tensor.code == 0, from_tensor.err
    assert [p.name for p in Path("out").iterdir()] == ["t.png"]
    from_image = command("run", "build", "images/a.png", "--json", "--score", "0")
    rows = json.loads(from_tensor.out)["t.npz"], json.loads(from_image.out)["a.png"]
    assert len(rows[0]) == len(rows[1]) and [r["score"] for r in rows[0]] == [r["score"] for r in rows[1]]
