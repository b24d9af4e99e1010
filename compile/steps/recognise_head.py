"""Which detection head a network ends in, seen from its outputs: names, shapes, and the operators between the last convolutions and the outputs.

A rule answers only where its shapes fit the input's size exactly, so that a network it does not know gives no head rather than a wrong one.
What cannot be seen (anchors of raw maps, sizes of priors) gives a hint what to declare.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import HeadSpec
from npuforge.compile.steps.head_outputs import Outputs

ARITHMETIC = {"Exp", "Add", "Sub", "Mul", "Div", "Pow", "Affine"}
PICKS = {"TopK", "NonMaxSuppression", "GatherElements", "GatherND"}
EXPORTED_ROWS = "batchno_classid_score_x1y1x2y2"  # a name that spells its columns
ULTRAFACE_PRIORS = ((8, 3), (16, 2), (32, 2), (64, 3))


@dataclass(frozen=True)
class Recognised:
    """The head, or none. `hint`: what to declare instead, or what was assumed (empty: nothing to say). `class_names` where the file lists them."""

    head: HeadSpec | None
    hint: str = ""
    class_names: tuple[str, ...] = ()


def _head(kind: str, score: float, nms: float, outputs: dict[str, Any], **options: Any) -> HeadSpec:
    return HeadSpec(kind, options | {"outputs": outputs}, score, nms)


# ---- rules: None where the outputs are others
def _yolodecode(o: Outputs) -> HeadSpec | None:
    """The kit's own operator decodes."""
    for node in o.graph.nodes:
        if node.op == "npuforge::YoloDecode" and set(node.outputs) == set(o.names):
            return _head("yolodecode", 0.3, 0.5, dict(zip(("boxes", "scores", "classes"), node.outputs, strict=True)))
    return None


def _detections(o: Outputs) -> HeadSpec | None:
    """NMS in the graph, by the names of exporters; or at most 1000 rows of six values that the graph has picked."""
    lower = {n.lower().split(":")[0]: n for n in o.names}
    for boxes, scores, classes, count, form in (
        ("detection_boxes", "detection_scores", "detection_classes", "num_detections", "corners_yx"),
        ("det_boxes", "det_scores", "det_classes", "num_dets", "corners"),
    ):
        if all(n in lower for n in (boxes, scores, classes)):
            outputs = {"boxes": lower[boxes], "scores": lower[scores], "classes": lower[classes]}
            outputs |= {"count": lower[count]} if count in lower else {}
            return _head("detections", 0.3, 0.5, outputs, box_format=form, relative=form == "corners_yx")
    if len(o.names) != 1:
        return None
    name, shape = o.names[0], o.shapes[0]
    if any(n.op == "NonMaxSuppression" for n in o.graph.nodes) and len(shape) == 2 and shape[1] == 7:
        spelled = EXPORTED_ROWS in name
        columns = "batch class score x1 y1 x2 y2" if spelled else "batch x1 y1 x2 y2 class score"
        return _head("detections", 0.3, 0.5, {"rows": name}, columns=columns.split())
    picked = len(shape) == 3 and shape[0] == 1 and shape[1] <= 1000 and shape[2] == 6 and PICKS & o.above(name)
    return _head("detections", 0.3, 0.5, {"rows": name}) if picked else None


def _yunet(o: Outputs) -> HeadSpec | None:
    """Twelve maps, by the authors' names."""
    roles = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
    expected = {f"{r}_{s}": (1, o.cells(s), n) for r, n in roles.items() for s in (8, 16, 32)}
    if {n: o.shape(n) for n in o.names} != expected:
        return None
    return _head("yunet", 0.6, 0.3, {r: [f"{r}_{s}" for s in (8, 16, 32)] for r in roles}, strides=[8, 16, 32])


def _by_rows(o: Outputs) -> dict[tuple[int, int], list[str]]:
    """(rows, values) → outputs [1, rows, values] or [rows, values]."""
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, shape in zip(o.names, o.shapes, strict=True):
        if len(shape) == 2 or (len(shape) == 3 and shape[0] == 1):
            found[shape[-2], shape[-1]].append(name)
    return found


def _scrfd(o: Outputs) -> HeadSpec | None:
    """Scores, distances and perhaps keypoints of two anchors per cell at three strides, or of one at five."""
    table, strides = _by_rows(o), [8, 16, 32] + ([64, 128] if len(o.names) % 5 == 0 else [])
    rows = [o.cells(s) * (2 if len(strides) == 3 else 1) for s in strides]
    roles = {"scores": 1, "distances": 4} | ({"keypoints": 10} if len(o.names) == 3 * len(strides) else {})
    if len(o.names) != len(strides) * len(roles) or any(len(table[r, n]) != 1 for r in rows for n in roles.values()):
        return None
    return _head("scrfd", 0.5, 0.4, {k: [table[r, n][0] for r in rows] for k, n in roles.items()}, strides=strides)


def _retinaface(o: Outputs) -> HeadSpec | None:
    """Boxes, scores and keypoints of two priors per cell."""
    table, rows = _by_rows(o), 2 * o.cells(8, 16, 32)
    roles = {"boxes": 4, "scores": 2, "keypoints": 10}
    if len(o.names) != 3 or any(len(table[rows, n]) != 1 for n in roles.values()):
        return None
    outputs = {role: table[rows, n][0] for role, n in roles.items()}
    applied = "Softmax" in o.above(outputs["scores"])
    return _head("retinaface", 0.5, 0.4, outputs, activation="none" if applied else "softmax")


def _blazeface(o: Outputs) -> HeadSpec | None:
    """Two maps of scores and two of 16 values."""
    table, rows = _by_rows(o), (2 * o.cells(8), 6 * o.cells(16))
    if len(o.names) != 4 or any(len(table[r, n]) != 1 for r in rows for n in (1, 16)):
        return None
    outputs = {"scores": [table[r, 1][0] for r in rows], "regressors": [table[r, 16][0] for r in rows]}
    return _head("blazeface", 0.5, 0.3, outputs, strides=[8, 16], anchors_per_cell=[2, 6])


def _ultraface(o: Outputs) -> HeadSpec | None:
    """Scores and boxes of the authors' priors, decoded where an exponential stands above the boxes."""
    table, rows = _by_rows(o), sum(o.cells(s) * n for s, n in ULTRAFACE_PRIORS)
    if len(o.names) != 2 or any(len(table[rows, n]) != 1 for n in (2, 4)):
        return None
    boxes = table[rows, 4][0]
    return _head("ultraface", 0.7, 0.3, {"scores": table[rows, 2][0], "boxes": boxes}, decoded="Exp" in o.above(boxes))


def _distributions(o: Outputs) -> HeadSpec | None:
    """NanoDet (three strides) and PicoDet (four): classes behind a sigmoid, and distances of 8 or 11 bins."""
    strides = {6: [8, 16, 32], 8: [8, 16, 32, 64]}.get(len(o.names), [])
    classes: list[str] = []
    distances: list[str] = []
    for stride in strides:
        level = [n for n, s in zip(o.names, o.shapes, strict=True) if len(s) == 3 and s[:2] == (1, o.cells(stride))]
        scores = [n for n in level if "Sigmoid" in o.above(n)]
        others = [n for n in level if n not in scores and _bins(o.shape(n)[2])]
        if len(level) != 2 or len(scores) != 1 or len(others) != 1:
            return None
        classes += scores
        distances += others
    if not strides or len({o.shape(n)[2] for n in distances}) != 1:
        return None
    kind = "nanodet" if len(strides) == 3 else "picodet"
    return _head(kind, 0.35, 0.6, {"classes": classes, "distances": distances}, strides=strides)


def _bins(columns: int) -> int:
    """Bins of each of the four distances in so many columns, as the authors set reg_max (7 or 10); 0: others."""
    return columns // 4 if columns in (32, 44) else 0


def _joined_distributions(o: Outputs) -> HeadSpec | None:
    """NanoDet's heads as one tensor of rows: classes behind a Sigmoid, then distances in bins.

    NanoDet-Plus (four strides, 5 x 5 convolutions in its head) measures from a cell's corner, the NanoDet before it (three, 3 x 3) from its middle. The kernels
    tell; where they are others, the strides.
    """
    if len(o.names) != 1 or len(o.shapes[0]) != 3 or o.shapes[0][0] != 1:
        return None
    name, (_, cells, values) = o.names[0], o.shapes[0]
    strides = o.strides_of_rows.get(cells, [])
    parts = o.column_parts(name, values) if strides and not o.above(name) & ARITHMETIC else []
    if len(parts) != 2 or not parts[0][1] or parts[1][1] or not _bins(parts[1][0]):
        return None
    kernels = o.kernels(name)
    from_corner = {3: False, 5: True}.get(kernels.pop() if len(kernels) == 1 else 0, len(strides) == 4)
    return _head(
        "nanodet_plus",
        0.35,
        0.6,
        {"predictions": name},
        strides=strides,
        bins=_bins(parts[1][0]),
        cell_offset=0.0 if from_corner else 0.5,
    )


def _single_rows(o: Outputs) -> HeadSpec | None:
    """One tensor of rows for all cells: YOLOX, and YOLO exports that decode in the graph. Raw maps beside it do not matter."""
    tensors = [(n, s) for n, s in zip(o.names, o.shapes, strict=True) if len(s) == 3 and s[0] == 1]
    if len(tensors) != 1 or any(len(s) not in (3, 5) for s in o.shapes):
        return None
    (name, (_, first, second)), above = tensors[0], o.above(tensors[0][0])
    three, four, wide = o.cells(8, 16, 32), o.cells(8, 16, 32, 64), o.cells(4, 8, 16, 32)
    outputs, task = {"predictions": name}, o.graph.metadata.get("task", "detect")
    if not above & ARITHMETIC:
        strides = o.strides_of_rows.get(first, [])
        parts = o.column_parts(name, second) if strides else []
        if parts == [(4, False), (1, True), (second - 5, True)]:
            return _head("yolox", 0.3, 0.65, outputs, strides=strides)
        return None
    if second > 5 and first in (three, 3 * three, 3 * four):
        return _head("yolo_rows", 0.25, 0.45, outputs, objectness=True)
    turned = task == "obb" or bool({"Sin", "Cos"} & above)
    if first > 4 and second in (three, four, wide) and (turned or task == "detect"):  # else masks or keypoints follow
        return _head("yolo_rows", 0.25, 0.45, outputs, objectness=False, angle=turned)
    return None


def _boxes(o: Outputs) -> HeadSpec | None:
    """pytorch-YOLOv4: relative corners [1, N, 1, 4] and class scores [1, N, classes]."""
    pairs = list(zip(o.names, o.shapes, strict=True))
    for (boxes, a), (scores, b) in (pairs, pairs[::-1]) if len(pairs) == 2 else ():
        if len(a) == 4 and a[2:] == (1, 4) and len(b) == 3 and b[:2] == a[:2] and a[1] % o.cells(32) == 0:
            return _head("boxes", 0.4, 0.5, {"boxes": boxes, "scores": scores}, relative=True, box_format="corners")
    return None


def _maps(o: Outputs) -> list[tuple[int, str, int]]:
    """(stride, output, channels) of outputs [1, channels, h, w]; empty unless all are such maps."""
    maps = [(n, s) for n, s in zip(o.names, o.shapes, strict=True) if len(s) == 4 and s[0] == 1]
    found = sorted((o.stride_of(s[2], s[3]), n, s[1]) for n, s in maps)
    return found if len(found) == len(o.names) and all(stride for stride, _, _ in found) else []


def _yolov8_maps(o: Outputs) -> HeadSpec | None:
    """Per stride 64 channels of distances and the classes, joined by a Concat or as two outputs."""
    maps = _maps(o)
    strides = sorted({s for s, _, _ in maps})
    if strides not in ([8, 16, 32], [4, 8, 16, 32], [8, 16, 32, 64]):
        return None
    if len(maps) == len(strides):
        joined = all(o.parts(name) == [64, channels - 64] for _, name, channels in maps)
        return _head("yolov8", 0.25, 0.7, {"maps": [n for _, n, _ in maps]}, strides=strides) if joined else None
    boxes = [(s, n) for s, n, c in maps if c == 64]
    classes = [(s, n) for s, n, c in maps if c != 64]
    alike = len({c for _, _, c in maps if c != 64}) == 1
    if not alike or [s for s, _ in boxes] != strides or [s for s, _ in classes] != strides:
        return None
    applied = all("Sigmoid" in o.above(n) for _, n in classes)
    outputs = {"boxes": [n for _, n in boxes], "classes": [n for _, n in classes]}
    return _head("yolov8", 0.25, 0.7, outputs, strides=strides, activation="none" if applied else "sigmoid")


def _fastestdet(o: Outputs) -> HeadSpec | None:
    """One map at stride 16 that joins an objectness (sigmoid), four values and classes (softmax)."""
    maps = _maps(o)
    if len(maps) != 1 or maps[0][0] != 16 or not {"Sigmoid", "Softmax"} <= o.above(maps[0][1]):
        return None
    fits = o.parts(maps[0][1]) == [1, 4, maps[0][2] - 5]
    return _head("fastestdet", 0.4, 0.45, {"predictions": maps[0][1]}) if fits else None


def _centernet(o: Outputs) -> HeadSpec | None:
    """A heat map, sizes and perhaps offsets at stride 4, told apart by the names the authors use."""
    maps = _maps(o)
    words = {"heatmap": ("hm", "heat"), "sizes": ("wh", "size"), "offsets": ("reg", "off")}
    roles = {r: [n for _, n, _ in maps if any(w in n.lower() for w in ws)] for r, ws in words.items()}
    expected = [1, 1, len(maps) - 2]
    if len(maps) not in (2, 3) or {s for s, _, _ in maps} != {4} or [len(ns) for ns in roles.values()] != expected:
        return None
    outputs = {r: ns[0] for r, ns in roles.items() if ns}
    if len(set(outputs.values())) != len(maps):
        return None
    applied = "Sigmoid" in o.above(outputs["heatmap"])
    return _head("centernet", 0.3, 0.5, outputs, strides=[4], activation="none" if applied else "sigmoid")


def _db_text(o: Outputs) -> HeadSpec | None:
    """One probability map of the input's size behind a sigmoid."""
    if o.shapes != [(1, 1, *o.size)] or "Sigmoid" not in o.above(o.names[0]):
        return None
    return _head("db_text", 0.6, 0.5, {"map": o.names[0]})


RULES: tuple[Callable[[Outputs], HeadSpec | None], ...] = (
    _yolodecode,
    _detections,
    _yunet,
    _scrfd,
    _retinaface,
    _blazeface,
    _ultraface,
    _distributions,
    _joined_distributions,
    _single_rows,
    _boxes,
    _yolov8_maps,
    _fastestdet,
    _centernet,
    _db_text,
)


def recognise(graph: Graph, image: str = "") -> Recognised:
    """The head of a network whose record declares none. `image`: the input that takes it, the first by default."""
    image = image or graph.inputs[0]
    shape = graph.tensors[image].shape
    if len(shape) != 4 or min(shape[2:]) < 1:
        return Recognised(None)
    outputs = Outputs(graph, image)
    for rule in RULES:
        head = rule(outputs)
        if head is not None:
            return Recognised(head, _assumed(head), class_names(graph.metadata))
    return Recognised(None, _hint(outputs))


def class_names(metadata: dict[str, str]) -> tuple[str, ...]:
    """The classes that an exporter wrote into the file (`names`: a list, or a dictionary from 0 upwards)."""
    try:
        names = ast.literal_eval(metadata.get("names", ""))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    if isinstance(names, dict) and list(names) == list(range(len(names))):
        names = list(names.values())
    return tuple(names) if isinstance(names, list) and all(isinstance(n, str) and n for n in names) else ()


def _assumed(head: HeadSpec) -> str:
    """What of a recognised head the graph does not show for certain."""
    if head.kind != "nanodet_plus":
        return ""
    found = head.options["cell_offset"]
    return (
        f"distances are taken from (cell + {found:g})·stride, as {'NanoDet' if found else 'NanoDet-Plus'} has them; "
        f"for {'NanoDet-Plus' if found else 'NanoDet and PicoDet'} declare {_declared(head, 0.0 if found else 0.5)}"
    )


def _name(tensor: str) -> str:
    """A tensor's name as a YAML value."""
    return tensor if tensor.isidentifier() else "'" + tensor.replace("'", "''") + "'"


def _declared(head: HeadSpec, cell_offset: float) -> str:
    """A nanodet_plus head as YAML, with another cell_offset."""
    options = ", ".join(f"{k}: {v}" for k, v in (head.options | {"cell_offset": cell_offset}).items() if k != "outputs")
    return (
        f"head: {{kind: {head.kind}, score_threshold: {head.score_threshold}, nms_threshold: {head.nms_threshold}, "
        f"options: {{{options}, outputs: {{predictions: {_name(head.options['outputs']['predictions'])}}}}}}}"
    )


def _hint(o: Outputs) -> str:
    """What to declare where the outputs look familiar but do not say enough."""
    sizes = [(n, s[2:4]) for n, s in zip(o.names, o.shapes, strict=True) if len(s) in (4, 5)]
    strides = [o.stride_of(*size) for _, size in sizes]
    if len(sizes) == len(o.names) and all(s >= 8 for s in strides):
        return (
            "they look like raw YOLO maps; if so, declare head: {kind: yolov5 (v5, v7), darknet (v3, v4) or yolov2, options: "
            f"{{strides: {strides}, anchors: [...], outputs: {{maps: [{', '.join(n for n, _ in sizes)}]}}}}}} (docs/heads.md)"
        )
    table = _by_rows(o)
    rows = {r for r, _ in table}
    levels = o.strides_of_rows
    if len(o.names) == len(table) == 1 and rows <= levels.keys() and not ARITHMETIC & o.above(o.names[0]):
        strides, outputs = levels[min(rows)], {"predictions": o.names[0]}
        bins = next((b for b in (8, 11) if o.shapes[0][2] > 4 * b), 8)
        nanodet = _head("nanodet_plus", 0.35, 0.6, outputs, strides=strides, bins=bins)
        return (
            "they look like undecoded rows whose columns are none that a rule knows; if they fit, declare for box, objectness, classes "
            f"head: {{kind: yolox, options: {{strides: {strides}, outputs: {{predictions: {_name(o.names[0])}}}}}}}; for classes and distances in bins "
            f"(bins: reg_max + 1) from the middle of the cell, as NanoDet and PicoDet have them, {_declared(nanodet, 0.5)}; "
            "from its corner, as NanoDet-Plus has them, the same with cell_offset: 0.0 (docs/heads.md)"
        )
    if len(o.names) == len(table) == 2 and len(rows) == 1 and min(rows) > 100 and any(n == 4 for _, n in table):
        return (
            "they look like boxes and scores of priors; if so, declare head: {kind: ssd, options: {strides: [...], "
            "anchors: [...]}}, or where the network has decoded the boxes already {kind: boxes, options: {relative: true}} (docs/heads.md)"
        )
    return ""
