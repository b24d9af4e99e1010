"""Reading and writing the preprocessing record as YAML, strictly: a wrong key or value is an InputError that names it and the legal ones.

Also the built-in records, one YAML per network family in compile/presets/.
"""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from npuforge.compile.ir.errors import InputError, UsageError, WriteError
from npuforge.compile.ir.files import whole_file
from npuforge.compile.ir.plain_text import parse_yaml
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess

PRESETS = Path(__file__).parent.parent / "presets"
CHOICES = {
    "color": ("RGB", "BGR", "GRAY", "NONE"),
    "resize": ("stretch", "letterbox_topleft", "letterbox_center"),
    "interpolation": ("linear", "nearest", "area", "cubic"),
    "layout": ("NCHW", "NHWC"),
    "dtype": ("float32", "uint8", "int8"),
}
# Head kinds and the options each understands (documented in docs/heads.md, read by board_runtime/src/heads/options.cpp; a test compares).
HEAD_OPTIONS: dict[str, tuple[str, ...]] = {
    "auto": (),
    "none": (),
    "blazeface": ("outputs", "strides", "anchors_per_cell"),
    "boxes": ("outputs", "activation", "background", "box_format", "relative", "multi_label"),
    "centernet": ("outputs", "strides", "activation"),
    "darknet": ("outputs", "strides", "anchors", "scale_x_y", "activation", "multi_label"),
    "db_text": ("outputs", "map_threshold", "unclip_ratio", "smallest_side"),
    "detections": ("outputs", "columns", "box_format", "relative"),
    "fastestdet": ("outputs", "objectness_power", "class_power", "multi_label"),
    "nanodet": ("outputs", "strides", "cell_offset", "multi_label"),
    "nanodet_plus": ("outputs", "strides", "bins", "cell_offset", "multi_label"),
    "picodet": ("outputs", "strides", "cell_offset", "multi_label"),
    "retinaface": ("outputs", "strides", "min_boxes", "center_variance", "size_variance", "activation"),
    "scrfd": ("outputs", "strides", "anchors_per_cell"),
    "ssd": (
        "outputs",
        "strides",
        "anchors",
        "min_boxes",
        "max_boxes",
        "aspect_ratios",
        "center_variance",
        "size_variance",
        "activation",
        "background",
        "multi_label",
    ),
    "ultraface": ("outputs", "strides", "min_boxes", "center_variance", "size_variance", "decoded"),
    "yolo_fastest_v2": ("outputs", "strides", "anchors", "multi_label"),
    "yolo_rows": ("outputs", "objectness", "angle", "box_format", "relative", "multi_label"),
    "yolodecode": ("outputs",),
    "yolov2": ("outputs", "strides", "anchors", "multi_label"),
    "yolov5": ("outputs", "strides", "anchors", "scale_x_y", "activation", "multi_label"),
    "yolov8": ("outputs", "strides", "bins", "activation", "multi_label"),
    "yolov8_obb": ("outputs", "strides", "bins", "activation", "multi_label"),
    "yolox": ("outputs", "strides", "multi_label"),
    "yunet": ("outputs", "strides"),
}


def preset_names() -> list[str]:
    """Names of the built-in records."""
    return sorted(p.stem for p in PRESETS.glob("*.yaml"))


def load_preprocess(source: str | Path) -> Preprocess:
    """A preprocessing record from a YAML file, or a built-in one by its name (`yolox_nano`): UsageError for another name, InputError for a bad file."""
    path = Path(source)
    if not path.is_file():
        built_in = PRESETS / f"{source}.yaml"
        if not built_in.is_file() or len(path.parts) != 1:
            text = f"{source}: no such preprocessing file; built-in ones: {', '.join(preset_names())}"
            raise InputError(text) if path.suffix or len(path.parts) != 1 else UsageError(text)
        path = built_in
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    return parse_preprocess(data, str(path))


def parse_preprocess(data: Any, where: str = "preprocessing") -> Preprocess:
    """A record from plain YAML or JSON data. `width` and `height` may be 0 (taken from the network's input); without `head` its kind is `auto`."""
    _check_keys(data, where, tuple(f.name for f in fields(Preprocess)))
    head = _parse_head(data.get("head", {"kind": "auto"}), f"{where}: head")
    record = Preprocess(head=head)
    for key in ("width", "height"):
        if key in data:
            setattr(record, key, _integer(data[key], f"{where}: {key}", 0, 16384))
    for key, legal in CHOICES.items():
        if key in data:
            setattr(record, key, _choice(data[key], f"{where}: {key}", legal))
    record.mean, record.std = [0.0] * record.channels, [1.0] * record.channels
    if "pad_value" in data:
        record.pad_value = _integer(data["pad_value"], f"{where}: pad_value", 0, 255)
    for key in ("mean", "std"):
        if key in data:
            setattr(record, key, _per_channel(data[key], f"{where}: {key}", record.channels))
    if "input" in data:
        if not isinstance(data["input"], str):
            raise InputError(f"{where}: input must be the name of a network input, found {data['input']!r}")
        record.input = data["input"]
    if any(s <= 0 for s in record.std):
        raise InputError(f"{where}: std must be positive, found {record.std}")
    if "class_names" in data:
        names = data["class_names"]
        if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
            raise InputError(
                f"{where}: class_names must be a list of names (quote those that YAML reads otherwise), found {names!r}"
            )
        record.class_names = list(names)
    return record


def save_preprocess(record: Preprocess, path: str | Path) -> None:
    """Writes the record as YAML; `load_preprocess` gives it back."""
    text = yaml.safe_dump(record.to_json(), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    try:
        with whole_file(Path(path)) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from error


def _check_keys(data: Any, where: str, legal: tuple[str, ...]) -> None:
    if not isinstance(data, dict):
        raise InputError(f"{where}: expected keys and values, found {type(data).__name__}")
    for key in data:
        if key not in legal:
            raise InputError(f"{where}: unknown key `{key}`, legal keys: {', '.join(legal) or 'none'}")


def _parse_head(data: Any, where: str) -> HeadSpec:
    _check_keys(data, where, tuple(f.name for f in fields(HeadSpec)))
    head = HeadSpec()
    if "kind" in data:
        head.kind = _choice(data["kind"], f"{where}: kind", tuple(HEAD_OPTIONS))
    for key in ("score_threshold", "nms_threshold"):
        if key in data:
            setattr(head, key, _number(data[key], f"{where}: {key}", 0.0, 1.0))
    options = data.get("options", {})
    _check_keys(options, f"{where}: options", HEAD_OPTIONS[head.kind])
    head.options = dict(options)
    return head


def _choice(value: Any, where: str, legal: tuple[str, ...]) -> str:
    if value not in legal:
        raise InputError(f"{where}: {value!r} is not legal, expected one of {', '.join(legal)}")
    return str(value)


def _integer(value: Any, where: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{where}: expected an integer in {low}..{high}, found {value!r}")
    return value


def _number(value: Any, where: str, low: float = -math.inf, high: float = math.inf) -> float:
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not math.isfinite(value)
        or not low <= value <= high
    ):
        limits = "" if low == -math.inf else f" in {low}..{high}"
        raise InputError(f"{where}: expected a number{limits}, found {value!r}")
    return float(value)


def _per_channel(value: Any, where: str, channels: int) -> list[float]:
    """A number per channel in the model's order; one number stands for all."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = [value] * channels
    if not isinstance(value, list) or len(value) != channels:
        expected = "three numbers, one per channel" if channels == 3 else "one number (color is GRAY)"
        raise InputError(f"{where}: expected {expected}, found {value!r}")
    return [_number(v, where) for v in value]
