"""`ReportData` → one self-contained HTML file and the same as JSON."""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import jinja2
import numpy as np
import yaml

from npuforge.compile.ir.errors import WriteError
from npuforge.compile.ir.files import whole_file
from npuforge.scripts.draw import class_name, draw_detections
from npuforge.scripts.performance import duration
from npuforge.scripts.report import svg
from npuforge.scripts.report.data import DEVICE, FLOAT, INTEGER, ImageComparison, Layer, ReportData
from npuforge.scripts.report.match import Matching, match

COLUMNS = ((FLOAT, "Float reference"), (INTEGER, "Integer graph"), (DEVICE, "Device"))
EXACT_DB = 199.9  # from here on an SQNR means: no error at all
CHART_DB = 80.0  # the chart's upper end
HISTOGRAMS = 6
PICTURE_WIDTH = 560
NAME_LENGTH = 36


def write_report(data: ReportData, html: str | Path, json_file: str | Path | None = None) -> None:
    """Writes the page and, next to it (same name, .json) unless named, the same as JSON. Files appear whole or not at all."""
    html = Path(html)
    json_file = html.with_suffix(".json") if json_file is None else Path(json_file)
    page = render_html(data)
    text = json.dumps(to_json(data), indent=1, ensure_ascii=False)
    for path, content in ((html, page), (json_file, text)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as temporary:
                temporary.write_text(content, encoding="utf-8")
        except OSError as error:
            raise WriteError(f"{path}: the report cannot be written: {error.strerror}") from error


def to_json(data: ReportData) -> dict[str, Any]:
    """The page's content without pictures: every figure, detections per column, and their matching. Not-a-number becomes null."""
    plain: dict[str, Any] = {k: v for k, v in vars(data).items() if k != "images"}
    result: dict[str, Any] = _clean(json.loads(json.dumps(plain, default=_plain)))
    result["format"] = 1
    result["images"] = [_image_json(image, data.oriented) for image in data.images]
    if data.performance is not None:
        result["performance"] |= {
            "utilisation": data.performance.utilisation,
            "milliseconds": data.performance.milliseconds,
        }
    differing, compared = data.differing()
    result["device_equality"] = {"values_compared": compared, "values_differing": differing}
    result["worst_layers"] = [layer.id for layer in data.worst_first() if layer.alone is not None]
    return result


def render_html(data: ReportData) -> str:
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: tuple[Callable[..., str], ...]
    filters = (
        svg.kibibytes,
        svg.short_number,
        _db,
        _percent,
        _points,
        _thousands,
        _cosine,
        _tail,
        _yaml,
        _signed,
        duration,
    )
    names = ("bytes", "short", "db", "percent", "points", "thousands", "cosine", "tail", "yaml", "signed", "duration")
    environment.filters |= dict(zip(names, filters, strict=True))
    differing, compared = data.differing()
    pictures = [_picture(image, data) for image in data.images]
    last_digits = any(t["b"] == COLUMNS[2][1] and not t["identical"] for p in pictures for t in p["tables"])
    return environment.get_template("template.html.j2").render(
        data=data,
        float_behind=bool(compared) and not differing and last_digits,
        columns=COLUMNS,
        layers=data.worst_first(),
        differing=differing,
        compared=compared,
        charts=_charts(data),
        histograms=[(y, svg.histogram(y.histogram, y.name)) for y in data.worst_first() if y.histogram][:HISTOGRAMS],
        pictures=pictures,
        accuracy_rows=_accuracy_rows(data),
        longest=max([1, *(y.cycles for y in data.layers)]),
    )


def _db(value: float) -> str:
    return "exact" if value >= EXACT_DB else f"{value:.1f}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def _points(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}"


def _thousands(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def _signed(value: float, digits: int, sign: bool = True) -> str:
    """A change. One that the digits do not show is no signed zero: `0.000` where there is none, else `<0.001`."""
    if abs(value) < 0.5 * 10.0**-digits:
        return f"<{10.0**-digits:.{digits}f}" if value else f"{0.0:.{digits}f}"
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def _cosine(value: float) -> str:
    return f"{value:.6f}" if value > 0.999 else f"{value:.4f}"


def _tail(name: str) -> str:
    """The end tells names apart."""
    return name if len(name) <= NAME_LENGTH else "…" + name[1 - NAME_LENGTH :]


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(_clean(value), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110))


def _charts(data: ReportData) -> dict[str, Any]:
    layers = data.layers
    charts: dict[str, Any] = {
        "sqnr": None,
        "cycles": None,
        "traffic": None,
        "memory": [(p, svg.memory_picture(p)) for p in data.memory],
    }
    if any(y.alone or y.accumulated for y in layers):
        series = []
        for kind, name in (("alone", "alone"), ("accumulated", "accumulated")):
            losses = [getattr(y, kind) for y in layers]
            values = [None if loss is None else min(max(loss.sqnr_db, 0.0), CHART_DB) for loss in losses]
            tips = [
                f"{_tip(y)}: {_db(loss.sqnr_db)} dB {name}" if loss else ""
                for y, loss in zip(layers, losses, strict=True)
            ]
            series.append(svg.Series(name, kind, values, tips))
        charts["sqnr"] = svg.line_chart(series, "SQNR (dB)", "layer, in network order")
    if any(y.cycles for y in layers):
        tips = [f"{_tip(y)}: {y.cycles} simulated cycles{_use(y)}" for y in layers]
        charts["cycles"] = svg.column_chart(
            [y.cycles for y in layers], [y.utilisation for y in layers], tips, "cycles", "layer, in network order"
        )
    if any(y.ddr_bytes for y in layers):
        tips = [f"{_tip(y)}: {svg.kibibytes(y.ddr_bytes)} of DDR traffic" for y in layers]
        totals = [y.ddr_bytes / 1024 for y in layers]
        charts["traffic"] = svg.column_chart(
            totals, [1.0] * len(layers), tips, "DDR traffic (KiB)", "layer, in network order"
        )
    return charts


def _tip(layer: Layer) -> str:
    return f"{layer.id} {layer.op} {layer.name}"


def _use(layer: Layer) -> str:
    return "" if layer.utilisation is None else f", {100 * layer.utilisation:.0f} % of the array's MACs"


def _accuracy_rows(data: ReportData) -> list[tuple[str, list[float | None]]]:
    """Classes by how much they lost between the float reference and the last measured column, largest loss first."""
    present = [c for c, _ in COLUMNS if c in data.accuracy]
    if FLOAT not in present or len(present) < 2:
        return []
    names = sorted(set().union(*(data.accuracy[c].per_class for c in present)))
    table = [
        (n, [data.accuracy[c].per_class.get(n) if c in data.accuracy else None for c, _ in COLUMNS]) for n in names
    ]

    def loss(row: tuple[str, list[float | None]]) -> float:
        values = [v for v in row[1] if v is not None]
        return values[-1] - values[0] if len(values) > 1 else 0.0

    return sorted(table, key=loss)


def _picture(image: ImageComparison, data: ReportData) -> dict[str, Any]:
    """Drawn columns as data URIs, and the matching of neighbouring columns as rows of the table."""
    drawn = []
    for column, title in COLUMNS:
        rows = image.detections.get(column)
        if rows is not None:
            canvas = draw_detections(image.image, rows, data.class_names, truth=image.truth, oriented=data.oriented)
            drawn.append({"title": title, "uri": _data_uri(canvas), "count": len(rows)})
    return {"name": image.name, "drawn": drawn, "tables": _tables(image, data)}


def _tables(image: ImageComparison, data: ReportData) -> list[dict[str, Any]]:
    tables = []
    for (a, a_title), (b, b_title) in ((COLUMNS[0], COLUMNS[1]), (COLUMNS[1], COLUMNS[2])):
        if a not in image.detections or b not in image.detections:
            continue
        left, right = image.detections[a], image.detections[b]
        matching = match(left, right, oriented=data.oriented)
        rows = [
            {
                "name": _label(left[p.reference], data),
                "a": left[p.reference, 4],
                "b": right[p.other, 4],
                "iou": p.iou,
                "change": p.score_change,
            }
            for p in matching.pairs
        ]
        rows += [
            {"name": _label(left[i], data), "a": left[i, 4], "b": None, "iou": None, "change": None}
            for i in matching.lost
        ]
        rows += [
            {"name": _label(right[i], data), "a": None, "b": right[i, 4], "iou": None, "change": None}
            for i in matching.gained
        ]
        identical = left.shape == right.shape and bool(np.array_equal(left, right))
        tables.append({"a": a_title, "b": b_title, "rows": rows, "matching": matching, "identical": identical})
    return tables


def _label(row: np.ndarray, data: ReportData) -> str:
    label = int(row[5])
    return data.class_names[label] if 0 <= label < len(data.class_names) else class_name(label, ())


def _data_uri(image: np.ndarray) -> str:
    scale = PICTURE_WIDTH / image.shape[1]
    if scale < 1:
        image = cv2.resize(image, (PICTURE_WIDTH, max(1, round(image.shape[0] * scale))), interpolation=cv2.INTER_AREA)
    data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
    return "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode("ascii")


def _image_json(image: ImageComparison, oriented: bool) -> dict[str, Any]:
    columns = [c for c, _ in COLUMNS if c in image.detections]
    matches = {
        f"{a}_to_{b}": _matching_json(match(image.detections[a], image.detections[b], oriented=oriented))
        for a, b in itertools.pairwise(columns)
    }
    return {
        "name": image.name,
        "detections": {c: _clean(image.detections[c].astype(float).round(4).tolist()) for c in columns},
        "matching": matches,
    }


def _matching_json(matching: Matching) -> dict[str, Any]:
    return asdict(matching) | {"mean_iou": matching.mean_iou, "largest_score_change": matching.largest_score_change}


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return vars(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)


def _clean(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
