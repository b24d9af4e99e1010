"""The scene generator: deterministic, scene i depends on (seed, i) only, boxes exact against masks and against geometry."""

import json

import cv2
import numpy as np
import pytest

from npuforge.scripts.scenes import CLASS_NAMES, generate, render_scene, write_folder
from npuforge.scripts.scenes.__main__ import main as scenes_command
from npuforge.scripts.scenes.parts import BUILDERS
from npuforge.scripts.scenes.scene import MAX_COVERED, bounds, place


def test_same_seed_same_scenes_other_seed_others() -> None:
    images, annotations = generate(11, 3)
    again, annotations_again = generate(11, 3)
    assert images.shape == (3, 256, 256, 3) and images.dtype == np.uint8
    assert np.array_equal(images, again) and annotations == annotations_again
    assert not np.array_equal(images[0], generate(12, 1)[0][0])
    assert not np.array_equal(images[0], images[1])


def test_a_scene_does_not_depend_on_how_many_are_made() -> None:
    images, annotations = generate(11, 4)
    alone, annotations_alone = generate(11, 1, start=3)
    assert np.array_equal(images[3], alone[0]) and annotations[3] == annotations_alone[0]


def test_boxes_are_the_bounds_of_the_masks() -> None:
    for index in range(12):
        scene = render_scene(3, index)
        assert 1 <= len(scene.annotations) <= 7
        for part, mask in zip(scene.annotations, scene.masks, strict=True):
            x1, y1, x2, y2 = part.box
            assert 0 <= x1 < x2 <= 256 and 0 <= y1 < y2 <= 256
            assert mask[y1:y2, x1:x2].sum() == mask.sum() == part.area  # nothing of the part is outside
            for edge in (mask[y1, x1:x2], mask[y2 - 1, x1:x2], mask[y1:y2, x1], mask[y1:y2, x2 - 1]):
                assert edge.any()  # and the box cannot be made smaller


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4])  # the outline of a spring is only its surrounding rectangle
def test_box_agrees_with_the_rotated_outline(kind: int) -> None:
    """Independent of the drawing: vertices turned by the rotation's formula, clockwise in the image."""
    rng = np.random.default_rng(kind)
    for angle in (0.0, 17.0, -75.5, 133.0):
        part = BUILDERS[kind](rng)
        centre, radius = np.array([120.3, 131.8]), 47.0
        turn = np.radians(angle)
        x = centre[0] + radius * (part.outline[:, 0] * np.cos(turn) - part.outline[:, 1] * np.sin(turn))
        y = centre[1] + radius * (part.outline[:, 0] * np.sin(turn) + part.outline[:, 1] * np.cos(turn))
        coverage, _ = place(part, centre, radius, angle, 256)
        # A pixel belongs to the part when at least half of it is covered; sharp corners lose up to about a pixel.
        assert np.abs(np.array(bounds(coverage >= 0.5)) - [x.min(), y.min(), x.max(), y.max()]).max() < 1.3


def test_angle_turns_the_bolt_head() -> None:
    """At angle 0 the head points left; at 90 degrees clockwise it points up."""
    part = BUILDERS[1](np.random.default_rng(0))
    upright, _ = place(part, np.array([64.0, 64.0]), 40, 90.0, 128)
    widths = (upright >= 0.5).sum(axis=1)
    rows = np.flatnonzero(widths)
    assert widths[rows[3]] > 1.5 * widths[rows[-8]]


def test_parts_cover_each_other_only_a_little() -> None:
    overlaps = 0
    for index in range(30):
        boxes = [a.box for a in render_scene(4, index).annotations]
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                shared = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
                overlaps += shared > 0
                assert shared <= MAX_COVERED * min((v[2] - v[0]) * (v[3] - v[1]) for v in (a, b))
    assert overlaps  # but they do


def test_every_kind_at_every_quarter_appears() -> None:
    _, annotations = generate(5, 60)
    parts = [a for scene in annotations for a in scene]
    assert {a.class_id for a in parts} == set(range(len(CLASS_NAMES)))
    assert {int(a.angle // 90) for a in parts} == {-2, -1, 0, 1}


def test_folder_has_the_pixels_and_coco_boxes(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = write_folder(tmp_path / "scenes", seed=11, count=2)
    truth = json.loads(path.read_text())
    images, annotations = generate(11, 2)
    for i, record in enumerate(truth["images"]):
        stored = cv2.imread(str(path.parent / "images" / record["file_name"]))[..., ::-1]
        assert np.array_equal(stored, images[i])
    first = [r for r in truth["annotations"] if r["image_id"] == 1]
    assert [r["category_id"] - 1 for r in first] == [a.class_id for a in annotations[0]]
    x1, y1, x2, y2 = annotations[0][0].box
    assert first[0]["bbox"] == [x1, y1, x2 - x1, y2 - y1]
    assert [c["name"] for c in truth["categories"]] == CLASS_NAMES


def test_command_line(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(
        "sys.argv", ["scenes", "--output", str(tmp_path / "out"), "--count", "1", "--seed", "11", "--suffix", ".jpg"]
    )
    assert scenes_command() == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "annotations.json")
    assert [p.name for p in (tmp_path / "out" / "images").iterdir()] == ["0000.jpg"]
    monkeypatch.setattr("sys.argv", ["scenes", "--output", str(tmp_path / "other"), "--suffix", ".gif"])
    assert scenes_command() == 1
    assert "expected .png or .jpg" in capsys.readouterr().err and not (tmp_path / "other").exists()
