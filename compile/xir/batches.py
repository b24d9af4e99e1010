"""What the vendor's graph runner asks of a whole file: every network input and output, and every tensor between children, begins with the batch.

`batch_axis.py` sees to that in a file for our NPU; what the vendor's compiler is given stays as it is. A child that reads nothing the graph runner leaves out:
constants, where the CPU has nothing else to do (`leaving.py`).
"""

from __future__ import annotations

from npuforge.compile.xir.listing import border
from npuforge.compile.xir.model import XModel

SHOWN = 3  # tensors that the notice names


def unlike_batches(model: XModel) -> list[str]:
    """A notice where the vendor's graph runner would end its process ("all tensor must have same batch size"), one where it lacks a network output."""
    shapes = {op.tensor.name: op.tensor.shape for op in model.ops}
    children = model.root.children if model.root is not None else []
    alone = [child for child in children if child.get("device") == "CPU" and not border(model, child)[0]]
    notices = []
    if alone:
        lacking = [name for child in alone for name in border(model, child)[1]]
        notices.append(
            f"the vendor's graph runner (Vitis AI Library) leaves out the constant network output{'s' * (len(lacking) > 1)} {_shown(lacking, shapes)}, "
            "since no other output is computed on the CPU; run the file child by child, or by npuforge"
        )
    names = [name for child in children if child not in alone for side in border(model, child) for name in side]
    if not children:
        read = {producer for op in model.ops for producer in op.inputs()}
        ends = (op for op in model.ops if op.type in ("data", "data-fix") or op.name not in read)
        names = [op.tensor.name for op in ends]
    npu = [name for child in model.by_device("DPU") for side in border(model, child) for name in side]
    if not names:
        return notices
    batch = shapes[(npu or names)[0]][0]
    unlike = [name for name in dict.fromkeys(names) if shapes[name][0] != batch]
    if not unlike:
        return notices
    return [
        *notices,
        f"the vendor's graph runner (Vitis AI Library) will not take the .xmodel: {_shown(unlike, shapes)} does not begin with the batch, {batch}; "
        "give such an input or output a leading axis in the network (Unsqueeze), or run the file child by child, or by npuforge",
    ]


def _shown(names: list[str], shapes: dict[str, list[int]]) -> str:
    return ", ".join(f"'{name}' {shapes[name]}" for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
