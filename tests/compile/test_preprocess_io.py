"""The preprocessing YAML: round trip, built-in records, and errors that name the key and the legal ones."""

from pathlib import Path

import pytest
import yaml

from npuforge.compile.ir.errors import InputError, UsageError, WriteError
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess
from npuforge.compile.ir.preprocess_io import load_preprocess, parse_preprocess, preset_names, save_preprocess


def test_round_trip(tmp_path: Path) -> None:
    record = Preprocess(
        width=320,
        height=240,
        color="BGR",
        resize="letterbox_center",
        pad_value=0,
        mean=[103.53, 116.28, 123.675],
        std=[57.375, 57.12, 58.395],
        layout="NHWC",
        class_names=["Schraube", "no", "螺母"],
        head=HeadSpec("yolox", {"strides": [8, 16], "outputs": {"predictions": "758"}}, 0.25, 0.65),
    )
    save_preprocess(record, tmp_path / "p.yaml")
    assert load_preprocess(tmp_path / "p.yaml") == record


def test_presets_cover_the_families_and_round_trip(tmp_path: Path) -> None:
    expected = {"yolox_nano", "yolo_fastest_1.1", "fastestdet", "nanodet_m", "yunet", "ultraface", "blazeface"}
    assert expected <= set(preset_names())
    for name in preset_names():
        record = load_preprocess(name)
        assert record.width > 0 and record.height > 0 and record.class_names and record.head.kind != "none"
        save_preprocess(record, tmp_path / "p.yaml")
        assert load_preprocess(tmp_path / "p.yaml") == record
    coco = load_preprocess("yolox_nano").class_names
    assert len(coco) == 80 and coco[0] == "person" and coco[79] == "toothbrush" and coco[11] == "stop sign"


def test_one_number_stands_for_three_channels() -> None:
    assert parse_preprocess({"mean": 127, "std": 128.0}).mean == [127.0] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("widht: 3", r"unknown key `widht`, legal keys: width, height, color"),
        ("width: 3.5", r"width: expected an integer in 0\.\.16384, found 3\.5"),
        ("width: true", r"width: expected an integer"),
        ("color: RBG", r"color: 'RBG' is not legal, expected one of RGB, BGR, GRAY"),
        ("resize: crop", r"resize: 'crop' is not legal, expected one of stretch"),
        ("pad_value: 256", r"pad_value: expected an integer in 0\.\.255"),
        ("mean: [1, 2]", r"mean: expected three numbers"),
        ("mean: [1, 2, .nan]", r"mean: expected a number"),
        ("std: [1, 0, 1]", r"std must be positive"),
        ("class_names: [cat, no]", r"class_names must be a list of names"),
        ("head: {kind: yolo}", r"head: kind: 'yolo' is not legal, expected one of auto, none, blazeface"),
        ("head: {kid: yolox}", r"head: unknown key `kid`"),
        (
            "head: {kind: yolox, options: {anchors: []}}",
            r"head: options: unknown key `anchors`, legal keys: outputs, strides",
        ),
        ("head: {options: {strides: []}}", r"unknown key `strides`, legal keys: none"),
        ("head: {score_threshold: 2}", r"score_threshold: expected a number in 0\.0\.\.1\.0, found 2"),
        ("[1, 2]", r"expected keys and values, found list"),
        ("", r"expected keys and values, found NoneType"),
        ("a: [", r"not valid YAML: .*line 1"),
    ],
)
def test_errors_name_the_key(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_preprocess(tmp_path / "p.yaml")
    assert "\n" not in str(caught.value) and "p.yaml" in str(caught.value)


def test_missing_file_lists_the_built_in_records(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such preprocessing file; built-in ones: .*yolox_nano"):
        load_preprocess("yolox")
    with pytest.raises(InputError, match="no such preprocessing file"):
        load_preprocess("../presets/yolox_nano")
    (tmp_path / "latin.yaml").write_bytes(b"class_names: [\xe9]")
    with pytest.raises(InputError, match="cannot be read"):
        load_preprocess(tmp_path / "latin.yaml")


def test_saving_into_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="cannot be written"):
        save_preprocess(Preprocess(), tmp_path / "none" / "p.yaml")


def test_saved_file_is_plain_yaml(tmp_path: Path) -> None:
    save_preprocess(load_preprocess("yunet"), tmp_path / "p.yaml")
    data = yaml.safe_load((tmp_path / "p.yaml").read_text())
    assert data["head"]["options"]["outputs"]["kps"] == ["kps_8", "kps_16", "kps_32"]
