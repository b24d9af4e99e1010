"""Stand-in for `vai_c_xir`: gives a fix form the children and the names that AMD's compiled examples have, and leaves the float operators in them.

As there: the input's `fix` becomes part of its `data-fix` op; a DPU tensor that leaves is int8 `<name>_fix`, its last op `<name>_fix_download_0`; the
CPU gets `fix2float` ops, `<name>_fix_` where the network ends. One DPU child, the rest on the CPU behind it. The MD5 sum of what was read is in `files_md5sum`.
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
    """Every `fix` and what computes it, back to the fixes before."""
    ops, found = {op.name: op for op in model.ops}, set[str]()

    def take(name: str) -> None:
        op = ops[name]
        if op.type == "data" or name in found:
            return
        found.add(name)
        for producer in op.inputs():
            take(producer)

    for op in model.ops:
        if op.type == "fix":
            take(op.name)
    return found


def compiled(model: XModel, fingerprint: int, dpu_name: str) -> XModel:
    dpu, returned = on_dpu(model), list(model.attrs["return_ops"].value)
    renamed: dict[str, str] = {}
    user, inner, outer = list[XOp](), list[XOp](), list[XOp]()  # ops of the children
    for op in model.ops:
        args = [(arg, [renamed.get(p, p) for p in producers]) for arg, producers in op.args]
        if op.type == "data":
            user.append(XOp(op.name, "data-fix", op.tensor, [], dict(op.attrs)))
            continue
        source = next((u for u in user if op.type == "fix" and list(op.inputs()) == [u.name]), None)
        if source is not None:
            source.tensor = fixed(op)
            source.attrs["data_type"] = string("XINT8")
            renamed[op.name] = source.name
            continue
        if op.name in dpu:
            readers = {other.name for other in model.ops if op.name in other.inputs()}
            leaves = op.type == "fix" and (op.name in returned or readers - dpu)
            name = f"{op.name}_download_0" if leaves else op.name
            inner.append(XOp(name, op.type, fixed(op) if leaves else op.tensor, args, dict(op.attrs)))
            renamed[op.name] = name
            for reader in sorted(readers - dpu) + [""] * (op.name in returned):
                own = f"{op.name}_{reader}"
                tensor = XTensor(own, list(op.tensor.shape), "FLOAT", 32)
                outer.append(XOp(own, "fix2float", tensor, [("input", [name])], dict(op.attrs)))
                renamed[f"{reader}<{op.name}"] = own
        else:
            args = [(arg, [renamed.get(f"{op.name}<{p}", renamed.get(p, p)) for p in names]) for arg, names in op.args]
            outer.append(XOp(op.name, op.type, op.tensor, args, dict(op.attrs)))
    children = [XSubgraph(f"subgraph_{op.name}", {"device": string("USER")}, [op.name]) for op in user]
    attrs = {"dpu_fingerprint": Attr("uint64", fingerprint), "dpu_name": string(dpu_name)}
    children.append(child("DPU", "libvart-dpu-runner.so", inner, attrs))
    if outer:
        children.append(child("CPU", "libvart-cpu-runner.so", outer, {}))
    model = XModel(model.name, [*user, *inner, *outer], XSubgraph("root", {}, [], children), model.attrs)
    check_structure(model)
    return model


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
    print(f"[UNILOG][INFO] Total device subgraph number {len(made.root.children)}, DPU subgraph number 1")
