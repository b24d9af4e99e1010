"""What a report shows: plain dataclasses and arrays. Whoever runs a comparison fills a `ReportData`; `render.py` turns it into HTML and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuforge.compile.ir.words import counted
from npuforge.scripts.report.match import Matching

# The three columns, in the order of the pages.
FLOAT, INTEGER, DEVICE = "float", "integer", "device"


@dataclass
class Loss:
    """One layer against the float reference. SQNR in dB (200 and more: no error at all), saturation a fraction."""

    sqnr_db: float
    cosine: float
    max_abs_error: float
    mean_abs_error: float
    saturation: float
    mean_error_share: float = 0.0  # mean error as a share of the reference's largest magnitude


@dataclass
class Histogram:
    """Counts of a layer's values in the float reference and in the integer graph, over the same bin edges (len(counts) + 1)."""

    edges: list[float]
    reference: list[int]
    integer: list[int]


@dataclass
class Layer:
    """One NPU layer in network order. Figures that were not measured are None."""

    id: str  # L0042
    name: str  # the node
    op: str
    sources: list[str]  # ONNX node names
    alone: Loss | None = None
    accumulated: Loss | None = None
    values_compared: int = 0  # integer graph against device
    values_differing: int = 0
    cycles: int = 0  # simulated
    macs: int = 0
    utilisation: float | None = None  # of the array's MACs during the layer's cycles
    ddr_bytes: int = 0  # read and written
    note: str = ""  # what the quantiser chose
    histogram: Histogram | None = None


@dataclass
class CpuNode:
    """A node on the CPU and the constraint it failed."""

    name: str
    op: str
    reason: str


@dataclass
class Partition:
    """A run of nodes on one device."""

    device: str  # NPU or CPU
    node_count: int
    inputs: list[str]
    outputs: list[str]
    cycles: int = 0
    macs: int = 0
    nodes: list[CpuNode] = field(default_factory=list)  # CPU partitions only


@dataclass
class Performance:
    """Totals of one inference, all *simulated*. `array_macs`: MACs the array could do per cycle."""

    cycles: int
    macs: int
    array_macs: int
    clock_mhz: float
    ddr_bytes: int
    engine_busy: dict[str, int] = field(default_factory=dict)  # engine → busy cycles

    @property
    def utilisation(self) -> float:
        """Share of the array's MACs in use."""
        return self.macs / (self.cycles * self.array_macs) if self.cycles and self.array_macs else 0.0

    @property
    def milliseconds(self) -> float:
        """Simulated cycles at the arch's clock."""
        return self.cycles / (self.clock_mhz * 1e3) if self.clock_mhz else 0.0


@dataclass
class Block:
    """`size` bytes at `offset`, needed at times lower <= t < upper."""

    name: str
    lower: int
    upper: int
    size: int
    offset: int


@dataclass
class MemoryPlan:
    """One memory's plan. `lower_bound`: the largest sum of live sizes. `time_unit` names what the times count."""

    name: str  # "DDR pool", "on-chip memory"
    peak: int
    lower_bound: int
    blocks: list[Block]
    capacity: int | None = None
    time_unit: str = "layer"


@dataclass
class ImageComparison:
    """One image and its detections per column: rows [x1, y1, x2, y2, score, class, ...] in image pixels. `truth`: rows x1, y1, x2, y2, class (oriented: four corners)."""

    name: str
    image: np.ndarray  # BGR
    detections: dict[str, np.ndarray]
    truth: np.ndarray | None = None


@dataclass
class Accuracy:
    """mAP of one column, fractions. `per_class`: class name → mAP50-95."""

    map: float
    map50: float
    map75: float
    per_class: dict[str, float] = field(default_factory=dict)


@dataclass
class ChannelGroup:
    """Channels of one network output that mean the same (box, scores): float range, errors of the device, distinct values in one image.

    `flattened`: the float network has many values, the device only a few.
    """

    output: str
    name: str
    channels: int
    low: float
    high: float
    max_abs_error: float
    mean_abs_error: float
    distinct_float: int
    distinct_device: int
    flattened: bool


@dataclass
class Gate:
    """A limit the user set. `found` is None where it could not be measured (then the gate has not passed)."""

    name: str  # --max-map-drop
    limit: float
    found: float | None
    passed: bool


@dataclass
class DetectionCounts:
    """Detections of the float reference against the device's, over all images; paired as in the tables (match.py)."""

    reference: int = 0
    found: int = 0  # of the reference's, by the device too
    lost: int = 0  # of the reference's, not by the device
    added: int = 0  # by the device only

    def add(self, matching: Matching) -> None:
        """One more image."""
        self.reference += len(matching.pairs) + len(matching.lost)
        self.found += len(matching.pairs)
        self.lost += len(matching.lost)
        self.added += len(matching.gained)

    def __str__(self) -> str:
        return f"{self.found} of the reference's {self.reference} found by the device, {self.lost} lost, {self.added} added"


@dataclass
class RowCounts:
    """Rows of an output that the network picks itself, over all images: of the float network, of the device, and those that are each other's."""

    reference: int = 0
    device: int = 0
    matched: int = 0
    unlike_images: int = 0  # with another number of rows
    by_head: bool = False  # its values are compared as detections
    whole: bool = False  # whole numbers: rows are each other's where they are equal

    def __str__(self) -> str:
        unlike = f", another number in {counted(self.unlike_images, 'image')}" if self.unlike_images else ""
        how = "compared as detections" if self.by_head else f"{self.matched} of them are each other's"
        return f"{self.reference} rows (float), {self.device} (device){unlike}; {how}"


def matched_share(matched: int, reference: int, device: int) -> float | None:
    """Of all rows of both columns, the share that has a partner; None where there are none."""
    return 2 * matched / (reference + device) if reference + device else None


@dataclass
class Reference:
    """Where the float column came from."""

    provider: str  # CUDAExecutionProvider, CPUExecutionProvider
    source: str  # "live", or the recorded file's name
    model_sha256: str = ""
    recorded_on: str = ""


@dataclass
class ReportData:
    """Everything on the page. Sections without data say that they were not run."""

    title: str
    model: str
    mode: str
    device: str  # sim, csim, ...
    arch: dict[str, Any]
    fingerprint: str
    preprocess: dict[str, Any]
    versions: dict[str, str]
    reference: Reference
    created: str = ""  # ISO time
    command: str = ""
    calibration: str = ""  # "min-max, 64 images"
    compiler: str = ""  # what a vendor's compiler made of the network; empty for our NPU
    class_names: list[str] = field(default_factory=list)
    oriented: bool = False  # the keypoints of a detection are its box's corners
    oriented_truth: bool = False  # mAP compares oriented boxes
    layers: list[Layer] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    performance: Performance | None = None
    memory: list[MemoryPlan] = field(default_factory=list)
    images: list[ImageComparison] = field(default_factory=list)
    detection_counts: DetectionCounts | None = None  # of all images, the drawn ones and the others; None: no head
    accuracy: dict[str, Accuracy] = field(default_factory=dict)  # column → mAP, where there is truth
    accuracy_images: int = 0
    channel_groups: list[ChannelGroup] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    index_outputs: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # outputs of class numbers → (differing, compared)
    picked_rows: dict[str, RowCounts] = field(default_factory=dict)  # outputs whose rows the network picks itself
    notices: list[str] = field(default_factory=list)

    def worst_first(self) -> list[Layer]:
        """Layers by the loss they cause themselves; layers without a figure last."""
        return sorted(self.layers, key=lambda y: y.alone.sqnr_db if y.alone else float("inf"))

    def differing(self) -> tuple[int, int]:
        """(values that differ, values compared) between integer graph and device, all layers."""
        return sum(y.values_differing for y in self.layers), sum(y.values_compared for y in self.layers)
