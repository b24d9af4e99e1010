"""A record that does not go with its network: found when compiling, and said by inspect as far as the network alone shows it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import GOOD, HEAD, CommandLine, make_model, node, save_model, tiny_model


def nms_model() -> onnx.ModelProto:
    """The tiny network, then NonZero: as many rows as the image decides."""
    return tiny_model(tail=[node("NonZero", ["h"], ["places"]), node("Cast", ["places"], ["t"], to=1)])


def test_a_head_whose_output_lacks_is_refused_whatever_the_outputs_shapes(command: CommandLine) -> None:
    save_model(nms_model(), Path("nms.onnx"))
    Path("yolox.yaml").write_text(
        "width: 16\nheight: 16\nhead: {kind: yolox, options: {outputs: {predictions: output}}}\n"
    )
    words = ("yolox head: the network has no output `output`", "its outputs are `y`")
    command.refused(1, words, "compile", "nms.onnx", "--calib", "images", "--preprocess", "yolox.yaml", "-o", "b")
    command.refused(1, words, "compile", "net.onnx", "--calib", "images", "--preprocess", "yolox.yaml", "-o", "b")
    Path("yolox.yaml").write_text(
        "head: {kind: nanodet, options: {outputs: {classes: [a, y, y], distances: [y, y, y]}}}\n"
    )
    command.refused(
        1, ("no output `a`",), "compile", "nms.onnx", "--calib", "images", "--preprocess", "yolox.yaml", "-o", "b"
    )


@pytest.mark.parametrize("arguments", [("run", "build", "images"), ("compare", "build", "images"),
                                       ("evaluate", "build", "--images", "images", "--truth", "truth.json")])  # fmt: skip
def test_a_build_whose_head_does_not_fit_is_no_usage_error(command: CommandLine, arguments: tuple[str, ...]) -> None:
    path = Path("build/manifest.json")
    manifest = json.loads(path.read_text())
    manifest["preprocess"]["head"]["options"] = {"outputs": {"predictions": "gone"}}
    path.write_text(json.dumps(manifest))
    command.refused(1, ("fastestdet head: the network has no output `gone`",), *arguments)


def test_class_names_that_are_not_as_many_as_the_classes_are_noticed(command: CommandLine) -> None:
    """The tiny network has two classes (7 = 1 + 4 + 2 channels)."""
    for names, found in (("[nut]", "1 name, "), ("[a, b, c]", "3 names, ")):
        Path("net.yaml").write_text(HEAD.replace("[nut, bolt]", names))
        result = command("compile", *GOOD)
        assert result.code == 0
        assert (
            f"notice: class_names of the preprocessing has {found}the network's fastestdet head 2 classes; give 2"
            in result.err
        )
    Path("net.yaml").write_text(HEAD)
    assert "class_names" not in command("compile", *GOOD).err


def test_a_layout_that_is_not_the_networks_is_noticed(command: CommandLine) -> None:
    Path("net.yaml").write_text(HEAD + "layout: NHWC\n")
    result = command("compile", *GOOD)
    assert result.code == 0
    assert "notice: the preprocessing says layout: NHWC, input x takes NCHW [1, 3, 16, 16]: NCHW is used" in result.err
    assert json.loads(Path("build/manifest.json").read_text())["preprocess"]["layout"] == "NCHW"


def plain(shape: tuple[int, ...]) -> onnx.ModelProto:
    """A 1 x 1 convolution."""
    axes = len(shape) - 2
    conv = node("Conv", ["x", "w"], ["y"], kernel_shape=[1] * axes)
    return make_model([conv], {"w": np.ones((4, shape[1], *[1] * axes), np.float32)}, shape)


@pytest.mark.parametrize(
    "model",
    [plain((4, 3, 16, 16)), plain((1, 3, 1, 20000))],
    ids=["batch", "size"],
)
def test_inspect_says_what_compile_refuses(command: CommandLine, model: onnx.ModelProto) -> None:
    save_model(model, Path("bad.onnx"))
    refused = command("compile", "bad.onnx", "--calib", "images", "-o", "b")
    assert refused.code == 1, refused
    said = refused.error_line.removeprefix("error: ")
    result = command("inspect", "bad.onnx", "--json")
    assert result.code == 0
    assert f"notice: npuforge compile refuses this network: {said}" in result.err.splitlines()
    assert json.loads(result.out)["compile_refuses"] == said
    good = command("inspect", "net.onnx", "--json")
    assert "compile refuses" not in good.err and "compile_refuses" not in json.loads(good.out)


def rows_of_the_run(columns: tuple[int, ...]) -> onnx.ModelProto:
    """The tiny network, then as many rows as NonZero finds: outputs [1, N, columns]."""
    tail = [
        node("Identity", ["h"], ["t"]),
        node("NonZero", ["h"], ["places"]),
        node("Transpose", ["places"], ["turned"], perm=[1, 0]),
        node("Cast", ["turned"], ["real"], to=1),
        node("Unsqueeze", ["real", "first"], ["four"]),
        node("Slice", ["four", "zeros", "one", "last"], ["single"]),
    ]
    wide = {n: ["four"] * (n // 4) + ["single"] * (n % 4) for n in columns}
    tail += [node("Concat", parts, [f"t{n}"], axis=2) for n, parts in wide.items()]
    constants = {"first": np.array([0]), "zeros": np.array([0]), "one": np.array([1]), "last": np.array([2])}
    model = tiny_model(tail=tail)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in constants.items())
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(f"t{n}", 1, None) for n in columns)
    return model


@pytest.mark.parametrize(
    ("columns", "head", "words"),
    [
        ((7,), "{kind: detections}", "detections head: output `t7` [1, 1, 7]"),
        ((6,), "{kind: detections}", ""),
        ((6, 4), "{kind: boxes}", "boxes head: output `t6`"),  # by position: boxes come first
        ((6, 4), "{kind: boxes, options: {outputs: {boxes: t4, scores: t6}}}", ""),
    ],
)
def test_heads_of_rows_that_only_a_run_counts_are_checked(
    command: CommandLine, columns: tuple[int, ...], head: str, words: str
) -> None:
    save_model(rows_of_the_run(columns), Path("rows.onnx"))
    Path("rows.yaml").write_text(f"head: {head}\nclass_names: [nut, bolt]\n")
    call = ("compile", "rows.onnx", "--calib", "images", "--preprocess", "rows.yaml", "-o", "b")
    if words:
        command.refused(1, (words,), *call)
        return
    result = command(*call)
    assert result.code == 0, result.err
    counted = "the network's boxes head 6 classes; give 6" in result.err
    assert counted == ("boxes" in head)  # `detections` holds class numbers: not countable


def test_a_head_that_cannot_be_checked_is_noticed(command: CommandLine) -> None:
    save_model(rows_of_the_run((85,)), Path("rows.onnx"))
    Path("rows.yaml").write_text("head: {kind: yolox}\n")
    result = command("compile", "rows.onnx", "--calib", "images", "--preprocess", "rows.yaml", "-o", "b")
    assert result.code == 0 and "the yolox head is not checked: only a run knows the shapes" in result.err
