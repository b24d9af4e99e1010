"""An .xmodel as a picture (SVG): its ops from top to bottom, coloured by device, without constants. Hovering an op shows all that the file says of it."""

from __future__ import annotations

from npuforge.compile.layered_picture import Layers, escape
from npuforge.compile.xir.listing import op_object
from npuforge.compile.xir.model import XModel

COLOURS = {"DPU": ("#cfe8d4", "#2f7d46"), "CPU": ("#f6d5b8", "#b5651d"), "USER": ("#d8dff0", "#4a5f96")}
OTHER = ("#eeeeee", "#777777")
CONSTANTS = ("const", "const-fix")


def svg(model: XModel) -> str:
    """The picture as a text."""
    sheet = Layers(box_width=200, box_height=32, gap_x=24, gap_y=22, margin=20)
    sheet.place((op.name, op.inputs()) for op in model.ops if op.type not in CONSTANTS)
    device: dict[str, str] = {}
    for child in model.root.children if model.root else []:
        for leaf in child.leaves():
            device |= dict.fromkeys(leaf.ops, str(child.get("device", "")))
    lines, boxes = [], []
    for op in model.ops:
        if op.name not in sheet.places:
            continue
        x, y = sheet.corner(op.name)
        for producer in dict.fromkeys(op.inputs()):
            if producer in sheet.places:
                lines.append(sheet.line(producer, op.name, device.get(producer) != device.get(op.name)))
        fill, edge = COLOURS.get(device.get(op.name, ""), OTHER)
        found = op_object(op)
        notes = [f"{op.name} ({op.type})", f"{op.tensor.name}: {op.tensor.dtype} {op.tensor.shape}"]
        notes += [f"{name} = {value!r}" for name, value in found["attributes"].items()]
        notes += [f"tensor {name} = {value!r}" for name, value in found["tensor"]["attributes"].items()]
        shape = "x".join(map(str, op.tensor.shape))
        boxes.append(
            f"<g><title>{escape(chr(10).join(notes))}</title>"
            f'<rect x="{x}" y="{y}" width="{sheet.box_width}" height="{sheet.box_height}" rx="4" fill="{fill}" stroke="{edge}"/>'
            f'<text x="{x + 6}" y="{y + 13}" font-weight="600">{escape(op.type[:30])}</text>'
            f'<text x="{x + 6}" y="{y + 26}" fill="#555">{escape(f"{op.tensor.dtype} {shape}"[:32])}</text></g>'
        )
    title = f"<title>{escape(model.name)}: green DPU, orange CPU, blue USER; red lines cross over</title>"
    return "\n".join([sheet.head(), title, *lines, *boxes, "</svg>", ""])
