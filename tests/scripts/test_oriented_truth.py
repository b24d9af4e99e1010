"""Oriented truth: YOLO-OBB text as the format's own data has it, and mAP with the overlap of corners (Shapely, geometry by hand, COCO's own boxes)."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mean_average_precision import found, truth

from npuforge.compile.ir.errors import InputError
from npuforge.hw_kernels.rotated import polygon_overlap
from npuforge.scripts.datasets import Dataset, DatasetError, ImageTruth, load_dataset
from npuforge.scripts.draw import draw_detections
from npuforge.scripts.mean_average_precision import mean_average_precision
from npuforge.scripts.report.match import match
from npuforge.scripts.scenes import Annotation, render_scene, write_folder
from npuforge.scripts.scenes.oriented import PERIODS, corners, least_angle, oriented_box
from npuforge.scripts.scenes.parts import BUILDERS, CLASS_NAMES

DOTA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "dota8"
SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def turned(degrees: float, half: float = 20.0, centre: float = 50.0) -> np.ndarray:
    """A square turned about its centre."""
    a = np.radians(degrees)
    return half * SQUARE @ np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) + centre


def oriented(*images: list[tuple[np.ndarray, int]]) -> Dataset:
    dataset = Dataset("test", ["cat", "dog"])
    for n, objects in enumerate(images):
        around = np.array([c for c, _ in objects]).reshape(-1, 4, 2)
        boxes = np.concatenate([around.min(1), around.max(1)], 1)
        labels, areas = (
            np.array([k for _, k in objects], np.int64),
            np.array([shapely.Polygon(c).area for c, _ in objects]),
        )
        entry = ImageTruth(
            Path(f"{n}.png"), 200, 200, boxes, labels, areas, np.zeros(len(objects), bool), corners=around
        )
        dataset.images.append(entry)
    return dataset


def rows(*objects: tuple[np.ndarray, float, int]) -> np.ndarray:
    """Detections as an oriented head gives them."""
    made = [[*c.min(0), *c.max(0), score, label, *c.ravel()] for c, score, label in objects]
    return np.array(made, np.float32).reshape(-1, 14)


def labelled(folder: Path, **files: str) -> tuple[Path, Path]:
    """Two images of 200 x 100 pixels and a folder of label files."""
    for name in ("images", "labels"):
        (folder / name).mkdir()
    for name in "ab":
        cv2.imwrite(str(folder / "images" / f"{name}.png"), np.zeros((100, 200, 3), np.uint8))
    for name, text in files.items():
        (folder / "labels" / f"{name}.txt").write_text(text)
    return folder / "images", folder / "labels"


def test_nine_values_are_corners(tmp_path: Path) -> None:
    dataset = load_dataset(*labelled(tmp_path, a="1 0.5 0.2 0.6 0.5 0.5 0.8 0.4 0.5\n"))
    first, second = dataset.images
    assert dataset.oriented and first.corners is not None and second.corners is not None
    np.testing.assert_allclose(first.corners[0], [[100, 20], [120, 50], [100, 80], [80, 50]])
    np.testing.assert_allclose(first.boxes, [[80, 20, 120, 80]])
    assert first.areas.tolist() == [pytest.approx(1200)] and first.labels.tolist() == [1]
    assert second.corners.shape == (0, 4, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 .1 .1 .2 .1 .2 .2 .1 .2\n0 .5 .5 .1 .1", r"a\.txt:2: an upright box .*a\.txt:1 is an oriented one"),
        ("0 .1 .1 .2 .2 .2 .1 .1 .2", r"a\.txt:1: the corners must go around"),  # a bow tie
        ("0 .1 .1 .5 .1 .2 .2 .1 .5", r"a\.txt:1: the corners must go around"),  # a dent
        ("0 .1 .1 .2 .1 .2 .2 .1 x", r"a\.txt:1: expected an integer class and eight numbers"),
        ("0 10 10 20 10 20 20 10 20", r"a\.txt:1: values must be relative"),
        ("0 .1 .1 .2 .1 .2 .2 .1", r"a\.txt:1: .*found 8 values; an oriented box has nine"),
    ],
)
def test_bad_lines(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load_dataset(*labelled(tmp_path, a=text))


@pytest.mark.data
@pytest.mark.skipif(not DOTA.is_dir(), reason=f"{DOTA} is absent")
@pytest.mark.parametrize("part", ["train", "val"])
def test_dota8_is_read_whole(part: str) -> None:
    dataset = load_dataset(DOTA / "images" / part, DOTA / "labels" / part)
    assert dataset.oriented and len(dataset.images) == 4
    for image in dataset.images:
        lines = (DOTA / "labels" / part / f"{image.path.stem}.txt").read_text().split("\n")
        assert image.corners is not None and len(image.corners) == len([line for line in lines if line]) > 0
        for label, box, area, line in zip(image.labels, image.corners, image.areas, lines, strict=False):
            wanted = np.array(line.split(), float)
            assert label == wanted[0]
            np.testing.assert_allclose(box.ravel(), wanted[1:] * np.tile([image.width, image.height], 4))
            assert area == pytest.approx(shapely.Polygon(box).area, rel=1e-9)


quadrilaterals = st.tuples(
    *(st.floats(-20, 20, allow_subnormal=False) for _ in range(2)),
    *(st.floats(0.5, 30) for _ in range(2)),
    st.floats(-90, 90),
    st.floats(-0.4, 0.4),
    st.booleans(),
)


def quadrilateral(values: tuple[float, ...]) -> np.ndarray:
    """A turned trapezoid, around either way."""
    x, y, width, height, degrees, taper, backwards = values
    a = np.radians(degrees)
    local = SQUARE * [width / 2, height / 2] * np.array([[1 + taper, 1]] * 2 + [[1 - taper, 1]] * 2)
    around = local @ np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) + [x, y]
    return around[::-1] if backwards else around


@settings(max_examples=150, deadline=None)
@given(quadrilaterals, quadrilaterals)
def test_overlap_of_quadrilaterals_is_shapelys(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    first, second = quadrilateral(a), quadrilateral(b)
    one, other = shapely.Polygon(first), shapely.Polygon(second)
    wanted = one.intersection(other).area / one.union(other).area
    assert polygon_overlap(first, second) == pytest.approx(wanted, abs=1e-6)


def test_overlap_of_lines_and_strangers_is_none() -> None:
    flat = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert polygon_overlap(flat, flat) == polygon_overlap(flat, SQUARE) == polygon_overlap(SQUARE, SQUARE + 5) == 0.0
    assert polygon_overlap(SQUARE, SQUARE) == 1.0


@pytest.mark.parametrize(("degrees", "passed"), [(0, 10), (45, 5), (90, 10)])
def test_a_turned_square(degrees: float, passed: int) -> None:
    """A square and itself turned by 45° share an octagon, IoU 1/√2 = 0.7071: five of the ten thresholds; the boxes around them say nothing."""
    metrics = mean_average_precision(oriented([(turned(0), 0)]), [rows((turned(degrees), 0.9, 0))])
    assert metrics.map == pytest.approx(passed / 10) and metrics.map50 == pytest.approx(1.0)
    assert metrics.map75 == pytest.approx(float(passed == 10))


def test_crossed_bars_are_a_miss_although_their_upright_boxes_agree() -> None:
    bar = np.array([[-30, -3], [30, -3], [30, 3], [-30, 3]], float)
    turn = np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    one, other = bar @ turn + 50, bar @ turn.T + 50
    np.testing.assert_allclose([one.min(0), one.max(0)], [other.min(0), other.max(0)])
    metrics = mean_average_precision(oriented([(one, 0)], [(other, 0)]), [rows((other, 0.9, 0)), rows((other, 0.8, 0))])
    # best first: a false hit, then a true one: precision 1/2 up to recall 1/2 (51 of 101 recall points)
    assert metrics.map50 == pytest.approx(0.5 * 51 / 101)


def test_upright_corners_score_as_coco_scores_upright_boxes() -> None:
    random = np.random.default_rng(4)
    images, upright, turned_rows, plain_rows = [], [], [], []
    for _ in range(12):
        low, size = random.uniform(0, 120, (6, 2)), random.uniform(5, 70, (6, 2))
        boxes = np.concatenate([low, low + size], 1)
        labels = random.integers(0, 2, 6)
        shifted = boxes + random.normal(0, 4, boxes.shape)
        scores = random.uniform(0.1, 1, 6)
        around = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        images.append(list(zip(around, labels.tolist(), strict=True)))
        upright.append([(*box, label) for box, label in zip(boxes, labels, strict=True)])
        moved = np.sort(shifted.reshape(-1, 2, 2), axis=1).reshape(-1, 4)
        plain_rows.append(found(*[(*box, s, k) for box, s, k in zip(moved, scores, labels, strict=True)]))
        corners_of = moved[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        turned_rows.append(rows(*zip(corners_of, scores, labels.tolist(), strict=True)))
    ours = mean_average_precision(oriented(*images), turned_rows)
    theirs = mean_average_precision(truth(*upright), plain_rows)
    assert 0.1 < theirs.map < 0.9
    assert ours.per_class == pytest.approx(theirs.per_class, abs=1e-9)
    assert (ours.map, ours.map50, ours.map75) == pytest.approx((theirs.map, theirs.map50, theirs.map75), abs=1e-9)
    assert (ours.true_boxes, ours.detections) == (theirs.true_boxes, theirs.detections)


def test_upright_detections_cannot_be_scored_by_oriented_truth() -> None:
    with pytest.raises(InputError, match="the truth has oriented boxes"):
        mean_average_precision(oriented([(turned(0), 0)]), [found((30, 30, 70, 70, 0.9, 0))])
    assert mean_average_precision(oriented([(turned(0), 0)]), [np.zeros((0, 6), np.float32)]).map == 0.0


def test_columns_are_matched_by_their_corners() -> None:
    left, right = rows((turned(0), 0.9, 0)), rows((turned(45), 0.8, 0))
    assert match(left, right, oriented=True).pairs[0].iou == pytest.approx(np.sqrt(0.5), abs=1e-6)
    assert match(left, right, min_iou=0.75, oriented=True).lost == [0]


def test_oriented_truth_is_drawn_turned() -> None:
    corner = turned(45)
    around = np.concatenate([corner.min(0), corner.max(0), [0], corner.ravel()])[None]
    drawn = draw_detections(np.full((100, 100, 3), 90, np.uint8), np.zeros((0, 6)), truth=around)
    assert (drawn[32, 40] == 255).all() or (drawn[31:34, 39:42] == 255).any()  # on the slanted side
    assert (drawn[24:28, 24:28] == 90).all()  # a corner of the upright box


# ---- the scenes' oriented boxes
@pytest.mark.parametrize("name", CLASS_NAMES)
def test_box_is_the_smallest_rectangle_or_the_circles_square(name: str) -> None:
    """Slender parts against Shapely's smallest rectangle of the outline, round ones against the outline's farthest point."""
    class_id = CLASS_NAMES.index(name)
    outline = BUILDERS[class_id](np.random.default_rng(1)).outline
    extent = np.ptp(outline, axis=0)
    x, y, width, height, angle = oriented_box(Annotation(class_id, (0, 0, 1, 1), 25.0, (5.0, 6.0, *extent), 1))
    assert (x, y) == (5, 6)
    if PERIODS[name]:
        smallest = shapely.MultiPoint(outline).minimum_rotated_rectangle.area
        assert width * height == pytest.approx(smallest, rel=1e-9) and angle == 25 and width > height
    else:
        radius = np.hypot(*outline.T).max()
        assert width == height == pytest.approx(2 * radius, rel=0.02) and angle == 0  # a gear's teeth miss the axes


def test_turning_by_the_period_changes_nothing() -> None:
    for name, period in PERIODS.items():
        class_id = CLASS_NAMES.index(name)
        for degrees in (-200.0, -90.0, -31.5, 0.0, 17.25, 89.9, 90.0):
            angle = least_angle(class_id, degrees)
            assert -90 <= -period / 2 <= angle <= max(0.0, np.nextafter(period / 2, 0)) < 90
            assert least_angle(class_id, degrees + (period or 33.0)) == pytest.approx(angle, abs=1e-9)


def test_label_files_hold_the_parts(tmp_path: Path) -> None:
    """What is written is read again as the rectangle around the part's own pixels."""
    path = write_folder(tmp_path / "scenes", seed=11, count=2)
    dataset = load_dataset(path.parent / "images", path.parent / "labels")
    assert dataset.oriented
    for i, image in enumerate(dataset.images):
        scene = render_scene(11, i)
        assert image.corners is not None and len(image.corners) == len(scene.annotations)
        for part, mask, around in zip(scene.annotations, scene.masks, image.corners, strict=True):
            np.testing.assert_allclose(around, corners(oriented_box(part)), atol=1e-3)
            y, x = np.nonzero(mask)
            pixels = shapely.MultiPoint(np.stack([x + 0.5, y + 0.5], 1)).buffer(0.5).convex_hull
            box = shapely.Polygon(around)
            assert pixels.difference(box).area < 0.08 * pixels.area  # a hull of pixels is a little larger than the part
            assert pixels.area > 0.6 * box.area
