"""What an `.xmodel` is to our runtime: the `.bin` in it, or why there is nothing to run in it here. Files of any compiler can be read and listed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import XModel, XSubgraph
from npuforge.compile.xir.validate import read_checked
from npuforge.hw_kernels.isa.binfile import MAGIC


class XModelSource(NamedTuple):
    """model: the file. image: its `.bin`; None where it has none, for the `reason` that a runner is refused with."""

    model: XModel
    image: bytes | None
    reason: str = ""


def open_xmodel(path: Path) -> XModelSource:
    """Reads and checks the file (`read_checked`). FormatError also where it is ours and its NPU subgraphs do not hold one `.bin`."""
    model = read_checked(path)
    compiled = model.by_device("DPU")
    if model.root is None or not model.root.children:
        return XModelSource(
            model, None, f"{path}: a network without subgraphs, not compiled yet; there is nothing to run"
        )
    if not compiled:
        return _without_npu(path, model)
    if not any(_is_ours(child) for child in compiled):
        return XModelSource(
            model,
            None,
            f"{path}: compiled for the DPU {compiled[0].get('dpu_name')!r} by another compiler than npuforge; "
            "running it needs the vendor's VART and that DPU",
        )
    images = [_image(child) for child in compiled]
    if not images[0] or any(image != images[0] for image in images):
        raise FormatError(
            f"{path}: the DPU subgraphs do not hold one and the same .bin in reg_id_to_parameter_value['REG_0']; compile the network again"
        )
    for child in compiled:
        if "npuforge_partition" not in child.attrs:
            raise FormatError(
                f"{path}: subgraph {child.name!r}: no attribute npuforge_partition; compile the network again"
            )
    return XModelSource(model, images[0])


def _without_npu(path: Path, model: XModel) -> XModelSource:
    """No child carries the `.bin`: it is the file of that name beside the .xmodel, as in a build folder."""
    beside = path.with_suffix(".bin")
    assert model.root is not None
    if beside.is_file() and "npuforge_mode" in model.attrs:  # a file of ours
        try:
            return XModelSource(model, beside.read_bytes())
        except OSError as error:
            raise FormatError(f"{beside}: cannot be read ({error.strerror})") from None
    return XModelSource(
        model,
        None,
        f"{path}: no part of the network is on the NPU, so the file holds no .bin; running it needs {beside.name} of its build beside it",
    )


def _image(child: XSubgraph) -> bytes:
    return bytes((child.get("reg_id_to_parameter_value") or {}).get("REG_0", b""))


def _is_ours(child: XSubgraph) -> bool:
    """By our attribute, or by our magic number for files of older versions."""
    return "npuforge_partition" in child.attrs or _image(child)[:4] == MAGIC.to_bytes(4, "little")


def check_partitions(model: XModel, name: str, devices: list[str]) -> None:
    """FormatError where the `.bin` is another network's, or a subgraph's `npuforge_partition` is no partition of its device. name, devices: the network of
    the `.bin` and what its partitions run on, NPU or CPU."""
    assert model.root is not None
    if model.name != name:
        raise FormatError(
            f"the .xmodel is of the network {model.name!r}, its .bin of {name!r}; compile the network again"
        )
    for child in model.root.children:
        index, device = child.get("npuforge_partition"), child.get("device")
        wanted = "NPU" if device == "DPU" else "CPU"
        if index is None:
            continue
        if not isinstance(index, int) or not 0 <= index < len(devices) or devices[index] != wanted:
            raise FormatError(
                f"subgraph {child.name!r}: npuforge_partition {index!r} on the device {device}; the .bin's partitions are "
                f"{', '.join(devices)}; compile the network again"
            )


def execution_order(model: XModel, children: list[XSubgraph]) -> list[int]:
    """Places of the children in an order in which each is behind all that it reads from; that of the file where it is one."""
    place = {op: index for index, child in enumerate(children) for leaf in child.leaves() for op in leaf.ops}
    needs: list[set[int]] = [set() for _ in children]
    for op in model.ops:
        if op.name in place:
            needs[place[op.name]] |= {place[p] for p in op.inputs() if p in place} - {place[op.name]}
    order: list[int] = []
    while len(order) < len(children):  # the reader refuses circles
        order.append(next(i for i in range(len(children)) if i not in order and needs[i] <= set(order)))
    return order
