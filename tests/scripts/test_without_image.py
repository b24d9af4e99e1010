"""Networks none of whose inputs takes an image: vectors, signals, maps of other channels. Samples are arrays; compile, run, compare and record take them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import CommandLine, node
from onnx import helper, numpy_helper

RANDOM = np.random.default_rng(11)


def weights(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * 0.3).astype(np.float32)


W1, W2, W3 = weights(16, 32), weights(8, 32), weights(32, 4)
K1, K2 = weights(8, 2, 5), weights(4, 8, 3)
M1 = weights(8, 6, 3, 3)


def save(name: str, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], **constants: np.ndarray) -> None:
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(n, 1, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{name}.onnx")


def two_vectors(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x.astype(np.float64) @ W1 + z.astype(np.float64) @ W2, 0) @ W3)


def convolved(x: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """A 1-D convolution in float64, padded by half the kernel."""
    reach = kernel.shape[2] // 2
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (reach, reach)))
    places = range(0, x.shape[2], stride)
    columns = [np.tensordot(wide[:, :, p : p + kernel.shape[2]], kernel, axes=([1, 2], [1, 2])) for p in places]
    return np.stack(columns, axis=2)


def signal(x: np.ndarray) -> np.ndarray:
    return convolved(np.maximum(convolved(x, K1, 2), 0), K2, 1)


@pytest.fixture
def nets(command: CommandLine) -> CommandLine:
    gemms = [
        node("Gemm", ["x", "w1"], ["a"], "g1"),
        node("Gemm", ["z", "w2"], ["b"], "g2"),
        node("Add", ["a", "b"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("Gemm", ["d", "w3"], ["y"], "g3"),
    ]
    save("vectors", gemms, {"x": (1, 16), "z": (1, 8)}, w1=W1, w2=W2, w3=W3)
    signals = [
        node("Conv", ["x", "k1"], ["a"], "c1", kernel_shape=[5], pads=[2, 2], strides=[2]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "k2"], ["y"], "c2", kernel_shape=[3], pads=[1, 1]),
    ]
    save("signal", signals, {"x": (1, 2, 64)}, k1=K1, k2=K2)
    save(
        "maps", [node("Conv", ["x", "m1"], ["y"], "c1", kernel_shape=[3, 3], pads=[1] * 4)], {"x": (1, 6, 8, 8)}, m1=M1
    )
    for folder, shapes in {
        "vectors": {"x": (1, 16), "z": (1, 8)},
        "signal": {"x": (1, 2, 64)},
        "maps": {"x": (1, 6, 8, 8)},
    }.items():
        Path(folder).mkdir()
        for number in range(6):
            arrays = {n: RANDOM.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
            if len(arrays) == 1 and number % 2:
                np.save(f"{folder}/s{number}.npy", arrays["x"])
            else:
                np.savez(f"{folder}/s{number}.npz", **arrays)
    return command


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    return {"x": np.load(path)} if path.suffix == ".npy" else dict(np.load(path))


@pytest.mark.parametrize(
    ("net", "meaning", "bound"), [("vectors", two_vectors, 1e-4), ("signal", signal, 0.1)], ids=["vectors", "signal"]
)
def test_samples_are_arrays(nets: CommandLine, net: str, meaning: object, bound: float) -> None:
    built = nets("compile", f"{net}.onnx", "--calib", net, "-o", "b")
    assert built.code == 0, built.err
    assert "notice: no input takes an image (x float32" in built.err
    ran = nets("run", "b", net, "--tensors", "t.npz", "--json")
    assert ran.code == 0, ran.err
    outputs = np.load("t.npz")
    for path in sorted(Path(net).iterdir()):
        expected = meaning(**arrays_of(path))  # type: ignore[operator]
        found = outputs[f"{path.name}:y"]
        assert found.shape == expected.shape and np.abs(found - expected).max() < bound
    assert len(outputs.files) == 6
    compared = nets("compare", "b", net, "--min-cosine", "0.999", "--report", "r.html", "--json")
    assert compared.code == 0, compared.err
    assert json.loads(compared.out)["detection_counts"] is None
    recorded = nets("reference", "record", f"{net}.onnx", net, "-o", "ref.npz")
    assert recorded.code == 0, recorded.err
    assert nets("compare", "b", net, "--reference", "ref.npz", "--min-cosine", "0.999").code == 0


def test_a_map_of_six_channels_is_an_array_on_the_npu(nets: CommandLine) -> None:
    result = nets("compile", "maps.onnx", "--calib", "maps", "-o", "b")
    assert result.code == 0 and "partitions: NPU (1 node)" in result.out + result.err
    assert nets("compare", "b", "maps", "--min-cosine", "0.999").code == 0
    seen = nets("inspect", "maps.onnx", "--json")
    assert json.loads(seen.out).get("compile_refuses", "") == ""


def test_one_input_given_once_and_the_other_as_npy(nets: CommandLine) -> None:
    z = RANDOM.standard_normal((1, 8)).astype(np.float32)
    np.save("z.npy", z)
    Path("xs").mkdir()
    for number in range(4):
        np.save(f"xs/{number}.npy", RANDOM.standard_normal((1, 16)).astype(np.float32))
    assert nets("compile", "vectors.onnx", "--calib", "xs", "--input", "z=z.npy", "-o", "b").code == 0
    assert nets("run", "b", "xs/2.npy", "--input", "z=z.npy", "--tensors", "t.npz").code == 0
    np.testing.assert_allclose(np.load("t.npz")["2.npy:y"], two_vectors(np.load("xs/2.npy"), z), atol=1e-4)
    nets.refused(1, ("xs/2.npy: a .npy is one array, the inputs x, z would take it",), "run", "b", "xs/2.npy")


def test_a_record_can_say_that_there_is_no_image(nets: CommandLine) -> None:
    """The tiny network's [1, 3, 16, 16] is an array then; a head or an image input contradicts."""
    Path("none.yaml").write_text("color: NONE\n")
    Path("arrays").mkdir()
    np.savez("arrays/a.npz", x=RANDOM.standard_normal((1, 3, 16, 16)).astype(np.float32))
    assert nets("compile", "net.onnx", "--calib", "arrays", "--preprocess", "none.yaml", "-o", "b").code == 0
    assert nets("compare", "b", "arrays", "--min-cosine", "0.99").code == 0
    for text, words in (
        ("head: {kind: fastestdet}\n", "a fastestdet head needs an image, color NONE says that there is none"),
        ("input: x\n", "color NONE says that no input takes an image, input says that x does"),
    ):
        Path("none.yaml").write_text("color: NONE\n" + text)
        nets.refused(1, (words,), "compile", "net.onnx", "--calib", "arrays", "--preprocess", "none.yaml", "-o", "c")


def test_arrays_beyond_the_pixels_of_the_record_are_noticed(nets: CommandLine) -> None:
    """An image input takes pixels: what the record (here assumed: pixel/255) cannot give is clipped on the device."""
    notice = "pixels give 0 to 1: the rest is clipped; give the mean and std"
    for name, values in (
        ("inside", RANDOM.uniform(0, 1, (1, 3, 16, 16))),
        ("beyond", RANDOM.standard_normal((1, 3, 16, 16))),
    ):
        Path(name).mkdir()
        np.savez(f"{name}/a.npz", x=values.astype(np.float32))
        done = nets("compile", "net.onnx", "--calib", name, "-o", "b")
        assert done.code == 0
        assert (notice in done.err) == (name == "beyond"), done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compile", "signal.onnx", "--calib", "images", "-o", "b"), "a.png: no input of the network takes an image; "
         "give samples as .npz files with x by name, or as .npy files of x"),
        (("compile", "vectors.onnx", "--calib", "signal", "-o", "b"), "s0.npz: input 'x' takes float32 [1, 16], found float32 [1, 2, 64]"),
    ],
)  # fmt: skip
def test_samples_that_do_not_fit(nets: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    nets.refused(1, (words,), *arguments)


def test_there_is_no_preprocessing_to_check(nets: CommandLine) -> None:
    assert nets("compile", "signal.onnx", "--calib", "signal", "-o", "b").code == 0
    nets.refused(1, ("--check-preprocess needs",), "compare", "b", "signal", "--check-preprocess")


@pytest.mark.parametrize(
    ("net", "words"),
    [("maps", "input x has 6 channels, preprocessing (color BGR) gives 3; export the network with 3, or with 1"),
     ("signal", "input x takes float32 [1, 2, 64], expected real numbers of an image")],
)  # fmt: skip
def test_a_record_of_images_needs_an_image_input(nets: CommandLine, net: str, words: str) -> None:
    Path("bgr.yaml").write_text("color: BGR\n")
    nets.refused(1, (words,), "compile", f"{net}.onnx", "--calib", net, "--preprocess", "bgr.yaml", "-o", "b")
