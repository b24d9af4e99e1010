"""Training of the network for oriented boxes: modules against the file, loss by integral and gradcheck, augmentation on masks, a short training.

Run where PyTorch is: `pip install npuforge[train]`, then `pytest -m torch tests/scripts/test_oriented_training.py`.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[train]")
import torch

from npuforge.compile.reference import FloatReference
from npuforge.scripts import train_oriented
from npuforge.scripts.layer_modules import weights_of
from npuforge.scripts.oriented_model import CELLS
from npuforge.scripts.scenes import CLASS_NAMES, render_scene
from npuforge.scripts.scenes.oriented import corners
from npuforge.scripts.train_oriented import hellinger, make_network, pack, rows, turn

pytestmark = pytest.mark.torch
MODEL = Path(__file__).parents[2] / "scripts" / "demo_data" / "oriented.onnx"


def image_of(index: int) -> np.ndarray:
    return render_scene(3, index).image.astype(np.float32).transpose(2, 0, 1)[None] / 255


def test_pytorch_modules_give_what_the_file_gives() -> None:
    """The table as PyTorch modules with the file's weights, decoded there, against ONNX Runtime on the file."""
    model = onnx.load(MODEL)
    stored = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    network = make_network().eval()
    for name, value in weights_of(network).items():
        value[:] = stored[name]  # a view of the module's own memory
    image = image_of(4)
    with torch.no_grad():
        found = rows(network(torch.from_numpy(image)))
    predictions = FloatReference(MODEL, threads=1).run({"image": image})["predictions"][0]
    np.testing.assert_allclose(found["classes"][0].sigmoid().numpy().T, predictions[4:10], atol=1e-4)
    angle = 0.5 * np.arctan2(*found["codes"][0].numpy().T)
    turned = (angle - predictions[10] + np.pi / 2) % np.pi - np.pi / 2
    np.testing.assert_allclose(turned, 0, atol=1e-3)


def test_box_loss_is_the_gaussians_overlap_and_has_its_gradient() -> None:
    """1 - ProbIoU against the integral of √(p q) over the plane, and against torch's numerical gradient."""

    def density(box: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        cx, cy, w, h, a = box
        u = (x - cx) * np.cos(a) + (y - cy) * np.sin(a)
        v = (y - cy) * np.cos(a) - (x - cx) * np.sin(a)
        variances = w * w / 12, h * h / 12
        return np.exp(-0.5 * (u * u / variances[0] + v * v / variances[1])) / (2 * np.pi * np.sqrt(np.prod(variances)))

    first, second = np.array([40.0, 44.0, 30.0, 12.0, 0.4]), np.array([43.0, 40.0, 26.0, 15.0, -0.2])
    x, y = np.meshgrid(np.arange(0, 90, 0.25), np.arange(0, 90, 0.25))
    coefficient = np.sqrt(density(first, x, y) * density(second, x, y)).sum() * 0.25**2

    def tensors(box: np.ndarray) -> tuple[object, object, object]:
        rows = torch.tensor(box[None], dtype=torch.float64)
        code = torch.stack([torch.sin(2 * rows[:, 4]), torch.cos(2 * rows[:, 4])], 1)
        return rows[:, :2], rows[:, 2:4], code

    centre, size, code = tensors(first)
    truth_centre, truth_size, truth_code = tensors(second)
    truth = torch.cat([truth_centre, truth_size], 1)
    assert float(hellinger(centre, size, code, truth, truth_code)) == pytest.approx(np.sqrt(1 - coefficient), abs=1e-6)
    leaves = [t.clone().requires_grad_() for t in (centre, size, code)]
    assert torch.autograd.gradcheck(lambda c, s, k: hellinger(c, s, k, truth, truth_code), leaves)


def test_training_turns_boxes_with_the_pixels() -> None:
    """A part's mask through the augmentation lies where its box does, quarter by quarter and mirrored."""
    random = np.random.default_rng(0)
    for index in range(4):
        scene = render_scene(5, index)
        boxes, labels, counts = pack([scene.annotations])
        for k in range(int(counts[0])):
            mask = np.repeat(scene.masks[k][..., None].astype(np.uint8), 3, 2)
            for _ in range(6):
                turned, moved = turn(mask[None], boxes, labels, random)
                y, x = np.nonzero(turned[0, ..., 0])
                around = corners(tuple(moved[0, k]))
                sides = np.roll(around, -1, axis=0) - around
                inside = [a * (y + 0.5 - p[1]) - b * (x + 0.5 - p[0]) for p, (a, b) in zip(around, sides, strict=True)]
                lengths = np.hypot(*sides.T)
                assert all(
                    (value >= -1.5 * length).mean() > 0.99 for value, length in zip(inside, lengths, strict=True)
                )
                assert len(x) > 0.1 * moved[0, k, 2] * moved[0, k, 3]


def test_training_runs_and_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_oriented, "UNSEEN", 2)
    out = tmp_path / "net.onnx"
    monkeypatch.setattr(sys, "argv", ["train", "--out", str(out), "--scenes", "8", "--epochs", "2", "--batch", "4"])
    train_oriented.main()
    predictions = FloatReference(out, threads=1).run({"image": image_of(0)})["predictions"]
    assert predictions.shape == (1, 4 + len(CLASS_NAMES) + 1, CELLS) and np.isfinite(predictions).all()
    assert (predictions[0, 2:4] > 0).all() and (np.abs(predictions[0, 10]) <= np.pi / 2).all()
