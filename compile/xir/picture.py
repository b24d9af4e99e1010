"""An .xmodel as a picture (SVG): its ops from top to bottom, coloured by device, without constants. Hovering an op shows all that the file says of it."""

from __future__ import annotations

from collections import defaultdict
from html import escape as escaped

from npuforge.compile.xir.listing import op_object
from npuforge.compile.xir.model import XModel

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 200, 32, 24, 22, 20
COLOURS = {"DPU": ("#cfe8d4", "#2f7d46"), "CPU": ("#f6d5b8", "#b5651d"), "USER": ("#d8dff0", "#4a5f96")}
OTHER = ("#eeeeee", "#777777")
CONSTANTS = ("const", "const-fix")


def escape(text: str) -> str:
    """For XML, which has no control characters."""
    return escaped("".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text))


def _places(model: XModel) -> dict[str, tuple[int, int]]:
    """Column and row of every op but constants: the row is the longest way from a source, the column the nearest free one to the first producer's."""
    places: dict[str, tuple[int, int]] = {}
    taken: dict[int, set[int]] = defaultdict(set)
    for op in model.ops:
        if op.type in CONSTANTS:
            continue
        before = [places[name] for name in op.inputs() if name in places]
        row = max((r + 1 for _, r in before), default=0)
        wanted = before[0][0] if before else 0
        nearest = (c for d in range(len(model.ops)) for c in (wanted + d, wanted - d))
        column = next(c for c in nearest if c >= 0 and c not in taken[row])
        taken[row].add(column)
        places[op.name] = column, row
    return places


def svg(model: XModel) -> str:
    """The picture as a text."""
    places = _places(model)
    device: dict[str, str] = {}
    for child in model.root.children if model.root else []:
        for leaf in child.leaves():
            device |= dict.fromkeys(leaf.ops, str(child.get("device", "")))
    columns = max((column for column, _ in places.values()), default=0) + 1
    rows = max((row for _, row in places.values()), default=0) + 1
    width, height = 2 * MARGIN + columns * (BOX_WIDTH + GAP_X), 2 * MARGIN + rows * (BOX_HEIGHT + GAP_Y)

    def corner(name: str) -> tuple[int, int]:
        column, row = places[name]
        return MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y)

    lines, boxes = [], []
    for op in model.ops:
        if op.name not in places:
            continue
        x, y = corner(op.name)
        for producer in dict.fromkeys(op.inputs()):
            if producer not in places:
                continue
            left, top = corner(producer)
            start, end, bottom = left + BOX_WIDTH // 2, x + BOX_WIDTH // 2, top + BOX_HEIGHT
            middle = (bottom + y) // 2
            crosses = device.get(producer) != device.get(op.name)
            style = 'stroke="#c0392b" stroke-width="1.6"' if crosses else 'stroke="#8a929c"'
            lines.append(f'<path d="M{start} {bottom}C{start} {middle} {end} {middle} {end} {y}" fill="none" {style}/>')
        fill, edge = COLOURS.get(device.get(op.name, ""), OTHER)
        found = op_object(op)
        notes = [f"{op.name} ({op.type})", f"{op.tensor.name}: {op.tensor.dtype} {op.tensor.shape}"]
        notes += [f"{name} = {value!r}" for name, value in found["attributes"].items()]
        notes += [f"tensor {name} = {value!r}" for name, value in found["tensor"]["attributes"].items()]
        shape = "x".join(map(str, op.tensor.shape))
        boxes.append(
            f"<g><title>{escape(chr(10).join(notes))}</title>"
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="{fill}" stroke="{edge}"/>'
            f'<text x="{x + 6}" y="{y + 13}" font-weight="600">{escape(op.type[:30])}</text>'
            f'<text x="{x + 6}" y="{y + 26}" fill="#555">{escape(f"{op.tensor.dtype} {shape}"[:32])}</text></g>'
        )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="system-ui,sans-serif" font-size="11">'
    )
    title = f"<title>{escape(model.name)}: green DPU, orange CPU, blue USER; red lines cross over</title>"
    return "\n".join([head, title, *lines, *boxes, "</svg>", ""])
