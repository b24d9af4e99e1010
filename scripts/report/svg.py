"""Charts as inline SVG, without a plotting library: lines, columns, histograms and the memory-plan picture. Every mark carries a tooltip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from npuforge.scripts.report.data import Histogram, MemoryPlan

WIDTH = 1160
LEFT, RIGHT, TOP, BOTTOM = 78, 12, 12, 34


@dataclass
class Series:
    """One line: values in order (None leaves a gap) and a tooltip per point."""

    name: str
    style: str  # CSS class
    values: list[float | None]
    tips: list[str]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        high = low + 1.0
    raw = (high - low) / max(count, 1)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def short_number(value: float) -> str:
    """1234567 → 1.23 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def kibibytes(value: float) -> str:
    """Bytes in the unit that reads best."""
    for limit, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f} B"


class _Canvas:
    """Collects SVG elements; knows the plot area and its scales."""

    def __init__(
        self, height: int, x: tuple[float, float], y: tuple[float, float], label: str, width: int = WIDTH
    ) -> None:
        self.width, self.height, self.x, self.y = width, height, x, y
        self.parts: list[str] = []
        self.label = label

    def at_x(self, value: float) -> float:
        span = self.x[1] - self.x[0] or 1.0
        return LEFT + (value - self.x[0]) / span * (self.width - LEFT - RIGHT)

    def at_y(self, value: float) -> float:
        span = self.y[1] - self.y[0] or 1.0
        return self.height - BOTTOM - (value - self.y[0]) / span * (self.height - TOP - BOTTOM)

    def add(self, tag: str, tip: str = "", text: str = "", **attributes: object) -> None:
        pairs = "".join(f' {k.rstrip("_").replace("_", "-")}="{escape(_short(v))}"' for k, v in attributes.items())
        inner = (f"<title>{escape(tip)}</title>" if tip else "") + str(escape(text))
        self.parts.append(f"<{tag}{pairs}>{inner}</{tag}>" if inner else f"<{tag}{pairs}/>")

    def axes(self, ticks: Sequence[float], texts: Sequence[str], y_label: str, x_label: str) -> None:
        for tick, text in zip(ticks, texts, strict=True):
            y = self.at_y(tick)
            self.add("line", x1=LEFT, x2=self.width - RIGHT, y1=y, y2=y, class_="grid")
            self.add("text", text=text, x=LEFT - 8, y=y + 4, text_anchor="end", class_="tick")
        self.add(
            "line", x1=LEFT, x2=self.width - RIGHT, y1=self.height - BOTTOM, y2=self.height - BOTTOM, class_="axis"
        )
        middle = (TOP + self.height - BOTTOM) / 2
        self.add(
            "text",
            text=y_label,
            x=14,
            y=middle,
            text_anchor="middle",
            transform=f"rotate(-90 14 {middle:.1f})",
            class_="label",
        )
        self.add(
            "text",
            text=x_label,
            x=(LEFT + self.width - RIGHT) / 2,
            y=self.height - 6,
            text_anchor="middle",
            class_="label",
        )

    def finish(self) -> Markup:
        body = "".join(self.parts)
        head = (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.label)}" class="chart">'
        )
        return Markup(f"{head}{body}</svg>")  # every value above went through escape()


def _short(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def line_chart(series: Sequence[Series], y_label: str, x_label: str, height: int = 280) -> Markup:
    """Points joined by lines over their index."""
    values = [v for s in series for v in s.values if v is not None]
    count = max((len(s.values) for s in series), default=0)
    ticks = nice_ticks(min([0.0, *values]), max(values, default=1.0))
    canvas = _Canvas(height, (-0.5, max(count, 1) - 0.5), (ticks[0], ticks[-1]), f"{y_label} by {x_label}")
    canvas.axes(ticks, [f"{t:g}" for t in ticks], y_label, x_label)
    radius = 3.0 if count <= 150 else 2.0
    for s in series:
        run: list[str] = []
        for i, value in enumerate([*s.values, None]):
            if value is not None:
                run.append(f"{canvas.at_x(i):.1f},{canvas.at_y(value):.1f}")
            elif run:
                canvas.add("polyline", points=" ".join(run), class_=f"line {s.style}")
                run = []
        for i, value in enumerate(s.values):
            if value is not None:
                canvas.add(
                    "circle", tip=s.tips[i], cx=canvas.at_x(i), cy=canvas.at_y(value), r=radius, class_=f"dot {s.style}"
                )
    return canvas.finish()


def column_chart(
    values: Sequence[float], shades: Sequence[float | None], tips: Sequence[str], y_label: str, x_label: str
) -> Markup:
    """Columns; `shades` in 0..1 darken a column (MAC utilisation), None is drawn without fill."""
    ticks = nice_ticks(0.0, max(values, default=1.0))
    canvas = _Canvas(240, (0.0, max(len(values), 1)), (0.0, ticks[-1]), f"{y_label} by {x_label}")
    canvas.axes(ticks, [short_number(t) for t in ticks], y_label, x_label)
    gap = 0.12 if len(values) < 200 else 0.0
    for i, (value, shade, tip) in enumerate(zip(values, shades, tips, strict=True)):
        x1, x2, y = canvas.at_x(i + gap), canvas.at_x(i + 1 - gap), canvas.at_y(value)
        style = "column none" if shade is None else "column"
        opacity = 1.0 if shade is None else 0.25 + 0.75 * min(max(shade, 0.0), 1.0)
        canvas.add(
            "rect",
            tip=tip,
            x=x1,
            y=y,
            width=x2 - x1,
            height=max(canvas.at_y(0) - y, 0.5),
            opacity=opacity,
            class_=style,
        )
    return canvas.finish()


def histogram(h: Histogram, label: str) -> Markup:
    """Reference as filled columns, integer graph as a line on top; counts on a square-root scale, so that tails stay visible."""
    tallest = math.sqrt(max([1, *h.reference, *h.integer]))
    canvas = _Canvas(200, (h.edges[0], h.edges[-1]), (0.0, tallest), label, WIDTH // 2)
    ticks = nice_ticks(h.edges[0], h.edges[-1], 8)
    for tick in ticks:
        if h.edges[0] <= tick <= h.edges[-1]:
            canvas.add(
                "text", text=f"{tick:g}", x=canvas.at_x(tick), y=canvas.height - 16, text_anchor="middle", class_="tick"
            )
    points = []
    for low, high, a, b in zip(h.edges, h.edges[1:], h.reference, h.integer, strict=False):
        x1, x2, y = canvas.at_x(low), canvas.at_x(high), canvas.at_y(math.sqrt(a))
        tip = f"{low:.4g} to {high:.4g}: {a} float, {b} integer"
        canvas.add("rect", tip=tip, x=x1, y=y, width=max(x2 - x1, 0.5), height=canvas.at_y(0) - y, class_="bin")
        points += [f"{x1:.1f},{canvas.at_y(math.sqrt(b)):.1f}", f"{x2:.1f},{canvas.at_y(math.sqrt(b)):.1f}"]
    canvas.add("polyline", points=" ".join(points), class_="line integer thin")
    canvas.add("line", x1=LEFT, x2=canvas.width - RIGHT, y1=canvas.at_y(0), y2=canvas.at_y(0), class_="axis")
    return canvas.finish()


def memory_picture(plan: MemoryPlan) -> Markup:
    """Blocks as rectangles: time to the right, address upwards; the planned peak and the lower bound as lines."""
    blocks = plan.blocks
    first, last = min((b.lower for b in blocks), default=0), max((b.upper for b in blocks), default=1)
    top = max(plan.peak, plan.lower_bound, 1)
    canvas = _Canvas(340, (first, last), (0.0, top * 1.06), f"memory plan of {plan.name}")
    step = next(s for s in (1 << k for k in range(6, 60)) if top / s <= 6)
    ticks = [float(i * step) for i in range(int(top // step) + 1)]
    canvas.axes(ticks, [kibibytes(t) for t in ticks], "address", f"time ({plan.time_unit})")
    for index, block in enumerate(blocks):
        x1, x2 = canvas.at_x(block.lower), canvas.at_x(block.upper)
        y1, y2 = canvas.at_y(block.offset + block.size), canvas.at_y(block.offset)
        tip = f"{block.name}: {kibibytes(block.size)} at {block.offset:#x}, {plan.time_unit} {block.lower} to {block.upper}"
        canvas.add(
            "rect", tip=tip, x=x1, y=y1, width=max(x2 - x1, 1.0), height=max(y2 - y1, 1.0), class_=f"block b{index % 6}"
        )
        letters = int((x2 - x1 - 8) / 6.5)
        if letters >= 4 and y2 - y1 >= 14:
            text = block.name if len(block.name) <= letters else "…" + block.name[1 - letters :]
            canvas.add("text", tip=tip, text=text, x=x1 + 4, y=(y1 + y2) / 2 + 4, class_="inside")
    for value, style in ((plan.lower_bound, "bound"), (plan.peak, "peak")):
        canvas.add("line", x1=LEFT, x2=WIDTH - RIGHT, y1=canvas.at_y(value), y2=canvas.at_y(value), class_=style)
    return canvas.finish()
