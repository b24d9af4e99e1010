"""The preprocessing record: declared once, stored in the artifacts, used by calibration, reference, simulator and board. Pure data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class HeadSpec:
    """How the network's output tensors become detections.

    kind: one of docs/heads.md; `none`: output tensors only; `auto`: to be recognised from the network's outputs at compile.
    options: what the kind needs (strides, anchors, outputs by name, ...), documented with each decoder.
    """

    kind: str = "none"
    options: dict[str, Any] = field(default_factory=dict)
    score_threshold: float = 0.3
    nms_threshold: float = 0.5


@dataclass
class Preprocess:
    """How an image file becomes the network's input.

    color: `RGB` or `BGR` (the model's channel order), `GRAY` (one channel, of which mean and std then have one value), or `NONE` (no input takes an image: all are given as
    arrays, and nothing else of the record is used). resize: `stretch`, `letterbox_topleft`, `letterbox_center`. real = (pixel - mean)/std per
    channel in the model's channel order. layout: of the ONNX input, `NCHW` or `NHWC`. pad_value: a pixel value. input: the network input that takes the image; empty: the only one that can.
    dtype: of that input, `float32`, `uint8` or `int8` (then rounded, halves up); the network's own, whatever the record says.
    """

    width: int = 0
    height: int = 0
    color: str = "RGB"
    resize: str = "stretch"
    interpolation: str = "linear"
    pad_value: int = 114
    mean: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    std: list[float] = field(default_factory=lambda: [1.0, 1.0, 1.0])
    layout: str = "NCHW"
    dtype: str = "float32"
    input: str = ""
    class_names: list[str] = field(default_factory=list)
    head: HeadSpec = field(default_factory=HeadSpec)

    @property
    def channels(self) -> int:
        """Of the network's input."""
        return {"GRAY": 1, "NONE": 0}.get(self.color, 3)

    @property
    def takes_image(self) -> bool:
        """Whether an input of the network takes an image."""
        return self.color != "NONE"

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary for JSON and YAML."""
        return asdict(self)
