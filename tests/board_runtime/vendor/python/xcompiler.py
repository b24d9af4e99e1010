"""Stand-in for `vai_c_xir`: gives a fix form the children and the names that AMD's compiled examples have, and leaves the float operators in them.

As there: the input's `fix` becomes part of its `data-fix` op; a DPU tensor that leaves is int8 `<name>_fix`, its last op `<name>_fix_download_0`; the
CPU gets `fix2float` ops, `<name>_fix_` where the network ends, and makes what enters the DPU int8 (`float2fix`). As few children as the order allows. The MD5 sum of
what was read is in `files_md5sum`.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from npuforge.compile.xir.builder import string
from npuforge.compile.xir.model import Attr, XModel, XOp, XSubgraph, XTensor, to_message
from npuforge.compile.xir.reader import check_structure, read_xmodel

TENSOR_ATTRS = ("fix_point", "bit_width", "if_signed", "round_mode")


def on_dpu(model: XModel) -> set[str]:
    """Every `fix` and what computes it, back to the fixes before; not one of what the CPU computed (in the other order of axes), which makes it int8 itself."""
    ops, found = {op.name: op for op in model.ops}, set[str]()
    for op in model.ops:
        if op.type != "fix" or any(ops[name].type == "transpose" for name in op.inputs()):
            continue
        waiting = [op.name]
        while waiting:
            found.add(waiting[-1])
            producers = ops[waiting.pop()].inputs()
            waiting += [name for name in producers if ops[name].type not in ("fix", "data") and name not in found]
    return found


def levels(ops: list[XOp], device: dict[str, str]) -> dict[str, int]:
    """Child by op: even ones are the DPU's, odd ones the CPU's. Constants are in the first child that reads them."""
    known, constants, found = {op.name for op in ops}, set[str](), dict[str, int]()
    for op in ops:
        level = max((found[name] for name in op.inputs() if name in known), default=0)
        found[op.name] = level + (level % 2 != (device[op.name] == "CPU"))
        if op.type == "const" or (op.type == "fix" and set(op.inputs()) <= constants):
            constants.add(op.name)
    for op in reversed(ops):
        if op.name in constants:
            found[op.name] = min(found[other.name] for other in ops if op.name in other.inputs())
    return found


def compiled(model: XModel, fingerprint: int, dpu_name: str) -> XModel:
    dpu, returned = on_dpu(model), list(model.attrs["return_ops"].value)
    renamed: dict[str, str] = {}
    user, rest, device = list[XOp](), list[XOp](), dict[str, str]()

    def add(op: XOp, where: str) -> None:
        rest.append(op)
        device[op.name] = where

    for op in model.ops:
        args = [(arg, [renamed.get(p, p) for p in producers]) for arg, producers in op.args]
        if op.type == "data":
            user.append(XOp(op.name, "data", op.tensor, [], dict(op.attrs)))
            continue
        source = next((u for u in user if op.type == "fix" and list(op.inputs()) == [u.name]), None)
        if source is not None:
            source.type, source.tensor = "data-fix", fixed(op)
            source.attrs["data_type"] = string("XINT8")
            renamed[op.name] = source.name
            continue
        if op.name in dpu:
            readers = {other.name for other in model.ops if op.name in other.inputs()}
            leaves = op.type == "fix" and (op.name in returned or readers - dpu)
            name = f"{op.name}_download_0" if leaves else op.name
            add(XOp(name, op.type, fixed(op) if leaves else op.tensor, args, dict(op.attrs)), "DPU")
            renamed[op.name] = name
            for reader in sorted(readers - dpu) + [""] * (op.name in returned):
                own = f"{op.name}_{reader}"
                tensor = XTensor(own, list(op.tensor.shape), "FLOAT", 32)
                add(XOp(own, "fix2float", tensor, [("input", [name])], dict(op.attrs)), "CPU")
                renamed[f"{reader}<{op.name}"] = own
        else:
            args = [(arg, [renamed.get(f"{op.name}<{p}", renamed.get(p, p)) for p in names]) for arg, names in op.args]
            enters = op.type == "fix"
            add(
                XOp(op.name, "float2fix" if enters else op.type, fixed(op) if enters else op.tensor, args, op.attrs),
                "CPU",
            )
    level = levels(rest, device)
    rest.sort(key=lambda op: level[op.name])
    children = [XSubgraph(f"subgraph_{op.name}", {"device": string("USER")}, [op.name]) for op in user]
    attrs = {"dpu_fingerprint": Attr("uint64", fingerprint), "dpu_name": string(dpu_name)}
    for number in sorted(set(level.values())):
        own = [op for op in rest if level[op.name] == number]
        if number % 2:
            children.append(child("CPU", "libvart-cpu-runner.so", own, {}))
        else:
            children.append(child("DPU", "libvart-dpu-runner.so", own, attrs))
    made = XModel(model.name, [*user, *rest], XSubgraph("root", {}, [], children), model.attrs)
    check_structure(made)
    return made


def child(device: str, library: str, ops: list[XOp], attrs: dict[str, Attr]) -> XSubgraph:
    runner = Attr("map_string_2_string", dict.fromkeys(("ref", "run", "sim"), library))
    own = {"device": string(device), "runner": runner} | attrs
    return XSubgraph(f"subgraph_{ops[0].name}", own, [op.name for op in ops])


def fixed(op: XOp) -> XTensor:
    return XTensor(op.name, list(op.tensor.shape), "XINT", 8, {name: op.attrs[name] for name in TENSOR_ATTRS})


if __name__ == "__main__":  # -x FILE -a ARCH -o FOLDER -n NAME
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    made = compiled(read_xmodel(arguments["-x"]), 0x0101000056010402, "DPUCZDX8G_ISA1_B1024")
    source = Path(arguments["-x"]).resolve()
    made.attrs["files_md5sum"] = Attr(
        "map_string_2_string", {str(source): hashlib.md5(source.read_bytes()).hexdigest()}
    )
    (Path(arguments["-o"]) / f"{arguments['-n']}.xmodel").write_bytes(to_message(made).SerializeToString())
    print("[UNILOG][INFO] Target architecture: DPUCZDX8G_ISA1_B1024")
    print(f"[UNILOG][INFO] Graph name: net, with op num: {len(made.ops)}")
    dpus = sum(child.attrs["device"].value == "DPU" for child in made.root.children)
    print(f"[UNILOG][INFO] Total device subgraph number {len(made.root.children)}, DPU subgraph number {dpus}")
