"""What the vendor's graph runner asks of a whole file: every tensor between children, and every network output, begins with the batch."""

from __future__ import annotations

from npuforge.compile.xir.listing import border
from npuforge.compile.xir.model import XModel

SHOWN = 3  # tensors that the notice names


def unlike_batches(model: XModel) -> list[str]:
    """A notice where the vendor's graph runner would end its process ("all tensor must have same batch size"), else none."""
    shapes = {op.tensor.name: op.tensor.shape for op in model.ops}
    children = model.root.children if model.root is not None else []
    names = [name for child in children for side in border(model, child) for name in side]
    if not children:
        read = {producer for op in model.ops for producer in op.inputs()}
        ends = (op for op in model.ops if op.type in ("data", "data-fix") or op.name not in read)
        names = [op.tensor.name for op in ends]
    npu = [name for child in model.by_device("DPU") for side in border(model, child) for name in side]
    if not names:
        return []
    batch = shapes[(npu or names)[0]][0]
    unlike = [name for name in dict.fromkeys(names) if shapes[name][0] != batch]
    if not unlike:
        return []
    shown = ", ".join(f"'{name}' {shapes[name]}" for name in unlike[:SHOWN]) + (", …" if len(unlike) > SHOWN else "")
    return [
        f"the vendor's graph runner (Vitis AI Library) will not take the .xmodel: {shown} does not begin with the batch, {batch}; "
        "give such an output a leading axis in the network (Unsqueeze), or run the file child by child, or by npuforge"
    ]
