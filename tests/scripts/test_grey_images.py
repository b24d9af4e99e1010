"""Networks of one channel: the record's `color: GRAY` from the image file to the device, against OpenCV, hand calculation and ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest
from command_line import CommandLine, make_model, node, save_model

from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import InputError
from npuforge.compile.ir.image import fit, load_image, prepare
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.preprocess_io import load_preprocess, parse_preprocess, save_preprocess
from npuforge.scripts.check_preprocess import variations

RECORD = "color: GRAY\nmean: 100\nstd: [50]\nhead: {kind: fastestdet}\nclass_names: [nut, bolt]\n"
COMPILE = ("compile", "grey.onnx", "--calib", "images", "-o", "grey")


@pytest.fixture
def grey(command: CommandLine) -> CommandLine:
    """The command line beside grey.onnx, 1 x 1 x 16 x 16, and grey.yaml."""
    random = np.random.default_rng(3)
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c"], "stem", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "w2", "b2"], ["h"], "head", kernel_shape=[1, 1]),
        node("Sigmoid", ["h"], ["y"]),
    ]
    values = {
        "w1": (random.standard_normal((8, 1, 3, 3)) * 0.5).astype(np.float32),
        "b1": np.zeros(8, np.float32),
        "w2": (random.standard_normal((7, 8, 1, 1)) * 0.5).astype(np.float32),
        "b2": np.zeros(7, np.float32),
    }
    save_model(make_model(nodes, values, (1, 1, 16, 16)), Path("grey.onnx"))
    Path("grey.yaml").write_text(RECORD)
    return command


def test_pixels_are_opencvs_luma_and_the_tensor_follows_mean_and_std(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    assert cv2.imwrite(str(tmp_path / "i.png"), image)
    record = Preprocess(20, 12, "GRAY", mean=[100.0], std=[50.0])
    pixels, tensor, _ = prepare(tmp_path / "i.png", record)
    luma = image.astype(np.float64) @ [0.114, 0.587, 0.299]  # ITU-R BT.601, blue first
    assert pixels.shape == (12, 20, 1) and np.abs(pixels[..., 0] - luma).max() <= 0.51
    np.testing.assert_array_equal(tensor[0, 0], ((pixels[..., 0].astype(np.float64) - 100) / 50).astype(np.float32))
    record.layout = "NHWC"
    assert prepare(tmp_path / "i.png", record)[1].shape == (1, 12, 20, 1)
    boxed, geometry = fit(image, Preprocess(40, 40, "GRAY", "letterbox_topleft", mean=[0.0], std=[1.0]))
    assert boxed.shape == (40, 40, 1) and (boxed[24:] == 114).all() and geometry.scale_x == 2.0
    expected = cv2.resize(cv2.imread(str(tmp_path / "i.png"), cv2.IMREAD_GRAYSCALE), (40, 24))
    assert np.abs(boxed[:24, :, 0].astype(int) - expected).max() <= 1  # a PNG's own reader rounds the luma otherwise
    expected = cv2.resize(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), (40, 24))
    np.testing.assert_array_equal(boxed[:24, :, 0], expected)


def test_a_record_of_one_channel(tmp_path: Path) -> None:
    record = parse_preprocess({"color": "GRAY", "mean": [3], "std": 2})
    assert (record.channels, record.mean, record.std) == (1, [3.0], [2.0])
    assert parse_preprocess({"color": "GRAY"}).std == [1.0]
    save_preprocess(record, tmp_path / "g.yaml")
    assert load_preprocess(tmp_path / "g.yaml") == record
    with pytest.raises(InputError, match=r"mean: expected one number \(color is GRAY\), found \[1, 2, 3\]"):
        parse_preprocess({"color": "GRAY", "mean": [1, 2, 3]})
    for label, other in variations(record):
        assert "color" not in label and len(other.mean) == len(other.std) == 1


@pytest.mark.parametrize("device", ["sim", "csim"])
def test_from_the_image_to_the_device(grey: CommandLine, device: str) -> None:
    """Device and integer graph agree bit by bit, pixels or floats; both are near ONNX Runtime."""
    assert grey(*COMPILE, "--preprocess", "grey.yaml").code == 0
    stored = json.loads(Path("grey/manifest.json").read_text())["preprocess"]
    assert (stored["color"], stored["mean"], stored["std"]) == ("GRAY", [100.0], [50.0])
    result = grey("compare", "grey", "images", "--device", device, "--json", "--min-cosine", "0.999")
    assert result.code == 0, result.err
    equality = json.loads(result.out)["device_equality"]
    assert equality["values_compared"] > 0 and equality["values_differing"] == 0
    assert grey("run", "grey", "images", "--device", device, "--draw", "drawn").code == 0
    assert load_image("drawn/a.png").shape == (24, 24, 3)

    record = parse_preprocess(stored)
    pixels, tensor, _ = prepare("images/a.png", record)
    session = Session("grey", device=device, threads=1)
    assert session.inputs[0].image
    of_pixels = session.run({"x": pixels[np.newaxis]})["y"]
    np.testing.assert_array_equal(of_pixels, session.run({"x": tensor})["y"])
    runtime = onnxruntime.InferenceSession("grey.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(of_pixels, runtime.run(None, {"x": tensor})[0], atol=0.03)


def test_samples_as_arrays_show_a_grey_picture(grey: CommandLine) -> None:
    assert grey(*COMPILE, "--preprocess", "grey.yaml").code == 0
    _, tensor, _ = prepare("images/a.png", Preprocess(16, 16, "GRAY", mean=[100.0], std=[50.0]))
    np.savez("a.npz", x=tensor)
    assert grey("run", "grey", "a.npz", "--json").code == 0
    assert grey("compare", "grey", "a.npz", "--report", "r.html").code == 0


def test_without_a_record_one_channel_is_taken_as_grey(grey: CommandLine) -> None:
    result = grey(*COMPILE)
    assert result.code == 0, result.err
    assert "assuming 16x16, GRAY, pixel/255" in result.err
    assert "compile refuses" not in grey("inspect", "grey.onnx").err


def test_the_other_colour_is_refused_with_the_remedy(grey: CommandLine) -> None:
    words = ("input x has 1 channel, preprocessing (color RGB) gives 3", "give color: GRAY in --preprocess")
    grey.refused(1, words, *COMPILE, "--preprocess", "net.yaml")
    words = ("input x has 3 channels, preprocessing (color GRAY) gives 1", "give color: RGB or BGR")
    grey.refused(1, words, "compile", "net.onnx", "--calib", "images", "--preprocess", "grey.yaml", "-o", "b")


def test_the_other_precision_and_mode(grey: CommandLine) -> None:
    for more in (("--mode", "pow2"), ("--precision", "bf16", "--arch", "nf-b1024-bf16")):
        assert grey(*COMPILE, "--preprocess", "grey.yaml", *more).code == 0
        result = grey("compare", "grey", "images", "--json", "--min-cosine", "0.99")
        assert result.code == 0 and json.loads(result.out)["device_equality"]["values_differing"] == 0
    assert grey("compare", "grey", "images", "--check-preprocess").code == 0
