"""Image files become the network's input: sizes, channel order, letterbox, float values; bad files are typed errors."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from npuforge.compile.ir.errors import CalibrationError, UsageError
from npuforge.compile.ir.image import fit, list_images, load_image, prepare, to_tensor
from npuforge.compile.ir.preprocess import Preprocess


def blue_image(height: int, width: int) -> np.ndarray:
    image = np.zeros((height, width, 3), dtype=np.uint8)
    image[:, :, 0] = 200  # OpenCV's order: blue first
    return image


def test_channel_order() -> None:
    bgr, _ = fit(blue_image(4, 4), Preprocess(width=8, height=8, color="BGR"))
    rgb, _ = fit(blue_image(4, 4), Preprocess(width=8, height=8, color="RGB"))
    assert bgr[0, 0].tolist() == [200, 0, 0]
    assert rgb[0, 0].tolist() == [0, 0, 200]
    assert rgb.flags.c_contiguous and rgb.dtype == np.uint8


def test_letterbox_places_and_pads() -> None:
    image = np.full((50, 100, 3), 9, dtype=np.uint8)
    top, g = fit(image, Preprocess(width=40, height=40, resize="letterbox_topleft", pad_value=114))
    assert (top[:20] == 9).all() and (top[20:] == 114).all()
    assert g.as_tuple() == (0.4, 0.4, 0.0, 0.0, 100.0, 50.0)
    centre, g = fit(image, Preprocess(width=40, height=40, resize="letterbox_center", pad_value=0))
    assert (centre[10:30] == 9).all() and (centre[:10] == 0).all() and (centre[30:] == 0).all()
    assert g.as_tuple() == (0.4, 0.4, 0.0, 10.0, 100.0, 50.0)


def test_stretch_fills_everything() -> None:
    pixels, g = fit(np.full((50, 100, 3), 9, dtype=np.uint8), Preprocess(width=40, height=30))
    assert pixels.shape == (30, 40, 3) and (pixels == 9).all()
    assert g.as_tuple() == (0.4, 0.6, 0.0, 0.0, 100.0, 50.0)


def test_no_resize_leaves_pixels_alone() -> None:
    image = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    pixels, _ = fit(image, Preprocess(width=48, height=32, color="BGR"))
    np.testing.assert_array_equal(pixels, image)


def test_an_extreme_shape_keeps_at_least_one_pixel() -> None:
    pixels, g = fit(
        np.full((1, 5000, 3), 9, dtype=np.uint8), Preprocess(width=32, height=32, resize="letterbox_topleft")
    )
    assert (pixels[0] == 9).all() and (pixels[1:] == 114).all()
    assert g.scale_y == 1.0


def test_float_tensor_in_both_layouts() -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    record = Preprocess(width=3, height=2, mean=[1.0, 2.0, 3.0], std=[2.0, 4.0, 8.0])
    nchw = to_tensor(pixels, record)
    assert nchw.shape == (1, 3, 2, 3) and nchw.dtype == np.float32
    assert nchw[0, 2, 1, 0] == (11 - 3) / 8  # pixel (1, 0) holds 9, 10, 11
    record.layout = "NHWC"
    np.testing.assert_array_equal(to_tensor(pixels, record)[0].transpose(2, 0, 1), nchw[0])


def test_prepare_reads_the_file(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a b.png"), blue_image(20, 20))
    pixels, tensor, geometry = prepare(tmp_path / "a b.png", Preprocess(width=10, height=10, std=[255.0] * 3))
    assert pixels[0, 0].tolist() == [0, 0, 200]
    assert tensor[0, 2, 0, 0] == np.float32(200 / 255)
    assert geometry.image_width == 20


def test_grey_and_alpha_files_become_three_channels(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "grey.png"), np.full((4, 4), 77, dtype=np.uint8))
    cv2.imwrite(str(tmp_path / "alpha.png"), np.full((4, 4, 4), 77, dtype=np.uint8))
    for name in ("grey.png", "alpha.png"):
        assert load_image(tmp_path / name).shape == (4, 4, 3)


@pytest.mark.parametrize("content", [b"", b"<html>no image</html>", b"\x89PNG\r\n\x1a\n"])
def test_unreadable_image_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.jpg").write_bytes(content)
    with pytest.raises(CalibrationError, match=r"bad\.jpg: not an image"):
        load_image(tmp_path / "bad.jpg")


def test_missing_files_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be read"):
        load_image(tmp_path / "none.jpg")
    with pytest.raises(CalibrationError, match="no such image file or folder"):
        list_images(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CalibrationError, match="holds no image"):
        list_images(tmp_path)


def test_list_is_sorted_by_name(tmp_path: Path) -> None:
    for name in ("b.JPG", "a.png", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    assert [p.name for p in list_images(tmp_path)] == ["a.png", "b.JPG"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resize": "crop"}, "unknown resize `crop`"),
        ({"color": "HSV"}, "unknown color `HSV`"),
        ({"interpolation": "best"}, "unknown interpolation `best`"),
        ({"width": 0}, "no input size"),
    ],
)
def test_wrong_records(change: dict[str, object], message: str) -> None:
    record = Preprocess(width=8, height=8)
    for key, value in change.items():
        setattr(record, key, value)
    with pytest.raises(UsageError, match=message):
        fit(blue_image(4, 4), record)


def test_wrong_array_and_layout() -> None:
    with pytest.raises(UsageError, match=r"uint8 image"):
        fit(np.zeros((4, 4), dtype=np.uint8), Preprocess(width=8, height=8))
    with pytest.raises(UsageError, match="unknown layout"):
        to_tensor(np.zeros((8, 8, 3), dtype=np.uint8), Preprocess(width=8, height=8, layout="HWC"))
