"""What pictures of graphs (SVG) share: where nodes go, the lines between them, text that XML can hold. Owns no node's content and no colours of devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape as escaped


def escape(text: str) -> str:
    """For XML, which has no control characters."""
    return escaped("".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text))


@dataclass
class Layers:
    """A sheet of boxes from top to bottom. Sizes in pixels; `places`: column and row of every box by name."""

    box_width: int
    box_height: int
    gap_x: int
    gap_y: int
    margin: int
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def place(self, nodes: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Nodes in topological order with their producers; those that are not placed count as absent. The row is the longest way from a source,
        the column the nearest free one to the first producer's."""
        taken: dict[int, set[int]] = defaultdict(set)
        for name, producers in nodes:
            before = [self.places[p] for p in producers if p in self.places]
            row = max((r + 1 for _, r in before), default=0)
            wanted, used = before[0][0] if before else 0, taken[row]
            nearest = (c for d in range(wanted + len(used) + 1) for c in (wanted + d, wanted - d))
            column = next(c for c in nearest if c >= 0 and c not in used)
            used.add(column)
            self.places[name] = column, row

    def corner(self, name: str) -> tuple[int, int]:
        """Left and top of a box."""
        column, row = self.places[name]
        return self.margin + column * (self.box_width + self.gap_x), self.margin + row * (self.box_height + self.gap_y)

    def head(self) -> str:
        """The opening tag, of the sheet's size."""
        columns = max((column for column, _ in self.places.values()), default=0) + 1
        rows = max((row for _, row in self.places.values()), default=0) + 1
        width = 2 * self.margin + columns * (self.box_width + self.gap_x)
        height = 2 * self.margin + rows * (self.box_height + self.gap_y)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="system-ui,sans-serif" font-size="11">'
        )

    def line(self, producer: str, consumer: str, crosses: bool, title: str = "") -> str:
        """From the producer's lower edge to the consumer's upper one; red where it crosses between devices."""
        (left, top), (x, y) = self.corner(producer), self.corner(consumer)
        start, end, bottom = left + self.box_width // 2, x + self.box_width // 2, top + self.box_height
        middle = (bottom + y) // 2
        style = 'stroke="#c0392b" stroke-width="1.6"' if crosses else 'stroke="#8a929c"'
        path = f'<path d="M{start} {bottom}C{start} {middle} {end} {middle} {end} {y}" fill="none" {style}'
        return path + (f"><title>{escape(title)}</title></path>" if title else "/>")
