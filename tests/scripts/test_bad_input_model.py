"""Bad models: each is one `error:` line that says what, where, what was found and the remedy, with its exit code; nothing is left, nothing is harmed.

Every case runs `npuforge compile` into a folder that holds a good build, which must stay byte for byte.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import GOOD, CommandLine, make_model, node, save_model, tiny_model
from onnx import TensorProto, helper, numpy_helper

REST = ("--calib", "images", "-o", "build")


def bad_bytes(kind: str) -> bytes:
    """What a file named .onnx may hold instead of a model."""
    model = tiny_model().SerializeToString()
    return {
        "text": b"this is no model at all, only text\n" * 9,
        "html": b"\n <!DOCTYPE html>\n<html><body>Not found</body></html>",
        "html in capitals": b"<HTML><HEAD></HEAD></HTML>",
        "zip": b"PK\x03\x04" + bytes(60),
        "lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "png": b"\x89PNG\r\n\x1a\n" + bytes(60),
        "empty": b"",
        "zeros": bytes(300),
        "half": model[: len(model) // 2],
        "one byte short": model[:-1],
        "first bytes": model[:9],
        "header only": model[:2],
    }[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("text", ("is not an ONNX model", "export it again")),
        ("html", ("is an HTML or XML page", "download the raw file")),
        ("html in capitals", ("is an HTML or XML page",)),
        ("zip", ("is not an ONNX model", "zip archive", "torch.onnx.export")),
        ("lfs pointer", ("Git LFS pointer", "git lfs pull")),
        ("png", ("is not an ONNX model",)),
        ("empty", ("is empty (0 bytes)", "download or export it again")),
        ("zeros", ("is not an ONNX model",)),
        ("half", ("is truncated", "ends at byte", "the file has", "download or export it again")),
        ("one byte short", ("is truncated",)),
        ("first bytes", ("is truncated", "the file has 9")),
        ("header only", ("it holds no graph", "export it again")),
    ],
)
def test_not_a_model(command: CommandLine, kind: str, words: tuple[str, ...]) -> None:
    Path("bad.onnx").write_bytes(bad_bytes(kind))
    command.refused(1, ("bad.onnx", *words), "compile", "bad.onnx", *REST)


def test_missing_file(command: CommandLine) -> None:
    command.refused(1, ("nowhere.onnx: no such file",), "compile", "nowhere.onnx", *REST)


def test_directory(command: CommandLine) -> None:
    command.refused(1, ("images is a directory", "give the .onnx file in it"), "compile", "images", *REST)


def test_no_permission_is_not_taken_for_missing(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    result = command("compile", "net.onnx", *REST)
    assert result.code == 1 and "net.onnx cannot be read: Permission denied" in result.error_line


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_external_data(command: CommandLine, damage: str) -> None:
    onnx.save(tiny_model(), "ext.onnx", save_as_external_data=True, location="ext.data", size_threshold=0)
    if damage == "missing":
        Path("ext.data").unlink()
        command.refused(1, ("tensor 'w1'", "'ext.data'", "missing", "copy that file"), "compile", "ext.onnx", *REST)
    else:
        Path("ext.data").write_bytes(b"1234")
        command.refused(1, ("tensor 'w1'", "'ext.data', which has 4"), "compile", "ext.onnx", *REST)


def test_unknown_domain(command: CommandLine) -> None:
    save_model(tiny_model([node("Fancy", ["r"], ["m"], "fancy_7", domain="my.ops")]), Path("u.onnx"))
    words = ("node 'fancy_7'", "no operator 'my.ops::Fancy' is known", "add an operator folder", "npuforge.ops")
    command.refused(1, words, "compile", "u.onnx", *REST)


def test_operator_that_runs_nowhere(command: CommandLine) -> None:
    save_model(tiny_model([node("RandomNormalLike", ["r"], ["m"], "noise_3")]), Path("u.onnx"))
    words = ("node 'noise_3' (RandomNormalLike) can run nowhere", "NPU: ", "CPU: ", "export the network without it")
    command.refused(1, words, "compile", "u.onnx", *REST)


def test_control_flow(command: CommandLine) -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Relu", ["a"], ["b"])],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("a", TensorProto.FLOAT, None)],
        [info("on", TensorProto.BOOL, []), info("b", TensorProto.FLOAT, None)],
    )
    counted = [
        node("ReduceMax", ["r"], ["largest"], keepdims=0),
        node("Cast", ["largest"], ["n"], to=TensorProto.INT64),
    ]
    save_model(tiny_model([*counted, node("Loop", ["n", "", "r"], ["m"], body=body)]), Path("u.onnx"))
    command.refused(1, ("node 'loop' (Loop)", "control flow"), "compile", "u.onnx", *REST)


@pytest.mark.parametrize(
    ("shape", "code", "words"),
    [
        (None, 2, ("input 'x'", "dynamic shape nx3xhxw", "--shape x=1x3x320x320")),
        ("x=1,3,16,16", 2, ("--shape 'x=1,3,16,16'", "expected NAME=1x3x416x416")),
        ("x=1x3x-2x16", 2, ("--shape", "positive whole numbers")),
        ("x=1x3x0x16", 2, ("--shape", "positive whole numbers")),
        ("", 2, ("--shape: expected a value",)),
        ("q=1x3x16x16", 2, ("--shape names the input 'q'", "its inputs: x")),
        ("x=1x3x16", 2, ("has 3 dimensions", "the model's input has 4 (nx3xhxw)")),
        ("x=1x4x16x16", 2, ("differs at dimension 1", "fixes it at 3")),
        ("x=2x3x16x16", 2, ("input x has a batch of 2, expected 1", "--shape x=1x3x16x16")),
        ("x=1x3x99999x16", 2, ("input x is 16x99999", "at most 16384", "smaller --shape")),
    ],
)
def test_dynamic_shape(command: CommandLine, shape: str | None, code: int, words: tuple[str, ...]) -> None:
    save_model(tiny_model(shape=("n", 3, "h", "w")), Path("dyn.onnx"))
    more = () if shape is None else ("--shape", shape)
    command.refused(code, words, "compile", "dyn.onnx", *REST, *more)


def test_shape_against_a_static_model(command: CommandLine) -> None:
    words = ("differs at dimension 2", "the model fixes it at 16")
    command.refused(2, words, "compile", "net.onnx", *REST, "--shape", "x=1x3x32x32")


def test_shape_needs_no_name_with_one_input(command: CommandLine) -> None:
    save_model(tiny_model(shape=("n", 3, "h", "w")), Path("dyn.onnx"))
    result = command("inspect", "dyn.onnx", "--shape", "1x3x32x16", "--verbose")
    assert result.code == 0 and "1x8x16x8" in result.out


def full(shape: tuple[int, ...], value: float) -> np.ndarray:
    return np.full(shape, value, np.float32)


NAN, INF = float("nan"), float("inf")
BATCH_NORM = node("BatchNormalization", ["r", "s", "z", "z", "v"], ["m"], "bn_1")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (tiny_model(weight=NAN), ("node 'stem' (Conv)", "1 of 216 weights are NaN or infinite")),
        (tiny_model(weight=-INF), ("node 'stem' (Conv)", "1 of 216 weights are NaN or infinite")),
        (
            tiny_model([node("Add", ["r", "k"], ["m"])], {"k": full((1, 8, 1, 1), NAN)}),
            ("(Conv)", "bias are NaN or infinite"),
        ),
        (
            tiny_model([BATCH_NORM], {"s": full((8,), 1), "z": full((8,), 0), "v": full((8,), -1)}),
            ("node 'bn_1' (BatchNormalization)", "negative variance"),
        ),
        (
            tiny_model([BATCH_NORM], {"s": full((8,), NAN), "z": full((8,), 0), "v": full((8,), 1)}),
            ("node 'bn_1' (BatchNormalization)", "NaN"),
        ),
        (
            tiny_model(tail=[node("Mul", ["h", "k"], ["t"], "scale_9")], constants={"k": full((1, 7, 8, 8), NAN)}),
            ("node 'scale_9' (Mul)", "constant 'k' holds NaN (448 of 448)"),
        ),
    ],
    ids=["weight nan", "weight inf", "constant nan", "variance", "gamma nan", "head constant nan"],
)
def test_nan_in_the_weights(command: CommandLine, model: onnx.ModelProto, words: tuple[str, ...]) -> None:
    save_model(model, Path("n.onnx"))
    command.refused(1, (*words, "check the training run or the export"), "compile", "n.onnx", *REST)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            tiny_model([node("Sub", ["r", "r"], ["z"]), node("Div", ["r", "z"], ["m"], "div_5")]),
            ("node 'div_5' (Div)", "tensor m", "NaN or infinity"),
        ),
        (
            tiny_model([node("Mul", ["r", "k"], ["z"]), node("Exp", ["z"], ["m"], "exp_5")], {"k": full((), 1e6)}),
            ("node 'exp_5' (Exp)", "NaN or infinity"),
        ),
        (tiny_model(weight=3e38), ("node 'stem' (Conv)", "values up to ", "e+38")),
    ],
    ids=["division by zero", "exp overflows", "finite but absurd"],
)
def test_nan_in_the_activations(command: CommandLine, model: onnx.ModelProto, words: tuple[str, ...]) -> None:
    """The message names the node, the image file and the remedy."""
    save_model(model, Path("n.onnx"))
    words = ("images/a.png", *words, "check the preprocessing and the model's weights")
    command.refused(1, words, "compile", "n.onnx", *REST)


CONV1 = node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            make_model([CONV1], {"w": full((4, 2, 1, 1), 1)}, (1, 2, 8, 8)),
            ("no input of the network takes an image", ".npz", "x"),
        ),
        (
            make_model([node("MatMul", ["x", "w"], ["y"])], {"w": full((3, 4), 1)}, (1, 3)),
            ("no input of the network takes an image", ".npz", "x"),
        ),
        (
            make_model(
                [node("Cast", ["x"], ["f"], to=1), node("Conv", ["f", "w"], ["y"], kernel_shape=[1, 1])],
                {"w": full((4, 3, 1, 1), 1)},
                (1, 3, 8, 8),
                dtype=TensorProto.INT32,
            ),
            ("no input of the network takes an image", ".npz", "x"),
        ),
        (
            make_model([node("Conv", ["x", "w"], ["y"])], {"w": full((4, 5, 1, 1), 1)}),
            ("'conv' (Conv)", "[4, 5, 1, 1]"),
        ),
        (
            make_model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], {}, output="b"),
            ("not a valid ONNX model", "topologically"),
        ),
        (make_model([CONV1], {"w": full((4, 3, 1, 1), 1)}, output="q"), ("is not a valid ONNX model",)),
    ],
    ids=["two channels", "no image", "int32", "channels do not fit", "cycle", "output from nowhere"],
)
def test_network_that_does_not_fit(command: CommandLine, model: onnx.ModelProto, words: tuple[str, ...]) -> None:
    save_model(model, Path("n.onnx"))
    result = command("compile", "n.onnx", *REST)
    assert result.code in (1, 2)
    command.refused(result.code, words, "compile", "n.onnx", *REST)


def test_two_inputs(command: CommandLine) -> None:
    model = make_model([node("Add", ["x", "x2"], ["a"]), CONV1], {"w": full((4, 3, 1, 1), 1)})
    model.graph.node[1].input[0] = "a"
    model.graph.input.append(helper.make_tensor_value_info("x2", TensorProto.FLOAT, [1, 3, 16, 16]))
    save_model(model, Path("n.onnx"))
    which = ("inputs x float32 [1, 3, 16, 16], x2 float32 [1, 3, 16, 16]", "say with `input: NAME`", "which of x, x2")
    command.refused(1, which, "compile", "n.onnx", *REST)


def test_no_output(command: CommandLine) -> None:
    model = tiny_model()
    del model.graph.output[:]
    save_model(model, Path("n.onnx"))
    command.refused(1, ("n.onnx", "no output", "export it again"), "compile", "n.onnx", *REST)


def test_half_precision_is_compiled_and_compared(command: CommandLine) -> None:
    """A float16 input is legal: the float reference gets it in the precision it declares."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float16)
    save_model(make_model([CONV1], {"w": weights}, dtype=TensorProto.FLOAT16), Path("n.onnx"))
    model = onnx.load("n.onnx")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    save_model(model, Path("n.onnx"))
    assert command("compile", "n.onnx", "--calib", "images", "-o", "half").code == 0
    result = command("compare", "half", "images", "--min-cosine", "0.99")
    assert result.code == 0, result
    assert "0 of" in result.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((b"kernel_shape", b"kernel_s\x9fape"), ("is damaged: the name", "no UTF-8 text", "export it again")),
        ((b"w1", b"\xff1"), ("is damaged", "no UTF-8 text")),
        (
            (b"\x08\x08\x08\x03\x08\x03\x08\x03", b"\x08\x08\x08\x03\x08\x07\x08\x03"),
            ("tensor 'w1' of shape [8, 3, 7, 3]",),
        ),
    ],
    ids=["attribute name", "tensor name", "dimensions"],
)
def test_damage_inside_the_file(command: CommandLine, change: tuple[bytes, bytes], words: tuple[str, ...]) -> None:
    """Bytes changed where the file still parses; protobuf has no checksum, so what can be seen is refused by what it breaks."""
    data = Path("net.onnx").read_bytes()
    old, new = change
    assert old in data
    Path("bad.onnx").write_bytes(data.replace(old, new))
    command.refused(1, ("bad.onnx", *words), "compile", "bad.onnx", *REST)


def test_random_damage_is_never_a_fault_of_ours(command: CommandLine) -> None:
    """50 files with one to three random bytes changed: each is a network still, or one line."""
    random = np.random.default_rng(7)
    data = np.frombuffer(Path("net.onnx").read_bytes(), np.uint8)
    codes = []
    for _ in range(50):
        damaged = data.copy()
        damaged[random.integers(0, data.size, random.integers(1, 4))] = random.integers(0, 256)
        Path("bad.onnx").write_bytes(damaged.tobytes())
        result = command("inspect", "bad.onnx")
        codes.append(result.code)
        if result.code:
            assert result.code in (1, 2) and result.error_line
    assert codes.count(0) > 5 and codes.count(1) > 5


def test_operator_set_of_the_future(command: CommandLine) -> None:
    """At the import, by both commands that read a model."""
    model = onnx.load("net.onnx")
    model.opset_import[0].version = 99
    onnx.save(model, "net.onnx")
    words = ("net.onnx: operator set 99", f"knows up to {onnx.defs.onnx_opset_version()}")
    command.refused(1, words, "compile", *GOOD)
    command.refused(1, words, "inspect", "net.onnx")


def test_initialisers_listed_as_inputs(command: CommandLine) -> None:
    """IR 3. The reference of the build is a valid file of its own: `compare` and `evaluate` read it."""
    model = onnx.load("net.onnx")
    model.ir_version, model.opset_import[0].version = 3, 11
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 7, 8, 8]))
    for value in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(value.name, value.data_type, list(value.dims)))
    onnx.checker.check_model(model)
    onnx.save(model, "net.onnx")
    assert command("compile", *GOOD).code == 0
    onnx.checker.check_model(onnx.load("build/reference.onnx"))
    assert command("compare", "build", "images").code == 0
    assert command("evaluate", "build", "--images", "images", "--truth", "truth.json").code == 0


def test_network_in_bfloat16_can_be_compared(command: CommandLine) -> None:
    """Weights, activations and a cast at either end: every value fits float32, which ONNX Runtime can run."""
    model = onnx.load("net.onnx")
    narrow = TensorProto.BFLOAT16
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        tensor.CopyFrom(helper.make_tensor(tensor.name, narrow, values.shape, values.ravel()))
    for each in model.graph.node:
        for names in (each.input, each.output):
            names[:] = [{"x": "x16", "y": "y16"}.get(name, name) for name in names]
    model.graph.node.insert(0, node("Cast", ["x"], ["x16"], "narrow", to=narrow))
    model.graph.node.append(node("Cast", ["y16"], ["y"], "wide", to=TensorProto.FLOAT))
    model.opset_import[0].version = 22  # the first with convolutions in bfloat16
    onnx.save(model, "net.onnx")
    assert command("compile", *GOOD).code == 0
    assert command("compare", "build", "images").code == 0
    rounded = np.asarray(numpy_helper.to_array(model.graph.initializer[0]), np.float32)
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load("build/reference.onnx").graph.initializer}
    np.testing.assert_array_equal(stored[model.graph.initializer[0].name], rounded)
