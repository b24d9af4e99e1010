"""Writes the `.xmodel`: the whole network under the root subgraph, one child per device run, our `.bin` inside the NPU children.

Children of the root: one `USER` leaf per network input, then the partitions in order (`DPU`: upload leaves, one leaf per layer, download leaves;
`CPU`: one leaf), then one `CPU` leaf that gives network outputs of the NPU as float, and others that are read on (`leaving.py`). A tensor that crosses an
NPU partition's border has the ONNX tensor's name, int8, NHWC; its float form (`<name>_float`, ONNX's axis order) belongs to the CPU partition. Leaves carry
no `device`: to the vendor's tools one that did would be a compiled subgraph of its own.

An NPU child carries what the `.bin` says of it (`places.py`) and `npuforge_partition`, its index there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from npuforge.compile.ir.errors import NpuforgeError, VerifyError
from npuforge.compile.ir.graph import Node, Partition
from npuforge.compile.ir.quantization import QGraph, TensorQuant
from npuforge.compile.xir import cpu_ops, npu_ops
from npuforge.compile.xir.batch_axis import OPEN_SHAPE, BatchAxes
from npuforge.compile.xir.bounds import OPEN, bounded
from npuforge.compile.xir.builder import (
    ROUND_MODE,
    RUNNER_LIBRARY,
    RUNNER_MODES,
    Builder,
    doubles,
    integer,
    integers,
    plain_tensor,
    string,
)
from npuforge.compile.xir.leaving import Leaving, constant_partitions
from npuforge.compile.xir.model import FLOAT_FORM_OF, UNREAD_INPUTS, Attr, Attrs, XModel, XSubgraph, XTensor, to_message
from npuforge.compile.xir.npu_ops import nhwc, npu_tensor
from npuforge.compile.xir.places import Places
from npuforge.compile.xir.reader import check_structure
from npuforge.compile.xir.shapes import shape_problems
from npuforge.compile.xir.validate import check_schema
from npuforge.hw_kernels.isa.binfile import BinFile, parse_bin, read_bin

CPU, DPU, USER = "CPU", "DPU", "USER"


def write_xmodel(qgraph: QGraph, binary: BinFile | bytes | Path | str, path: Path | str) -> XModel:
    """Writes the file, whole or not at all, and returns what is in it. `binary`: the `.bin` made of the same graph, or its path or bytes."""
    model = build_xmodel(qgraph, binary)
    data = to_message(model).SerializeToString(deterministic=True)
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise NpuforgeError(f"{target}: cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise NpuforgeError(f"{target}: cannot be written ({error.strerror})") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return model


def build_xmodel(qgraph: QGraph, binary: BinFile | bytes | Path | str) -> XModel:
    """The model, checked as our reader, XIR's operator table and XIR's shape rules would."""
    if isinstance(binary, bytes):
        binary = parse_bin(binary)
    elif not isinstance(binary, BinFile):
        binary = read_bin(binary)
    model = _Writer(qgraph, binary).build()
    check_structure(model)
    check_schema(model)
    wrong = shape_problems(model)
    if wrong:
        raise VerifyError(f"writing the .xmodel: {wrong[0]}")
    return model


@dataclass
class _Border:
    """Where a tensor's forms are: the op with its int8 form (outside any NPU partition) and, per CPU child, the op with its float form."""

    fixed: str = ""
    plain: dict[int, str] = field(default_factory=dict)


class _Writer:
    def __init__(self, qgraph: QGraph, binary: BinFile) -> None:
        self.qgraph, self.graph, self.places = qgraph, bounded(qgraph.graph), Places(binary)
        self.meta, self.layers = self.places.meta, self.places.layers
        self.open = frozenset(name for name, t in qgraph.graph.tensors.items() if OPEN in t.shape)
        self.builder = Builder()
        self.borders: dict[str, _Border] = {}
        self.children: list[XSubgraph] = []
        self.node_of = {n.name: n for n in self.graph.nodes}
        npu = [p for p in self.graph.partitions if p.device == "NPU"]
        self.crossing = {t for p in npu for t in (*p.inputs, *p.outputs)}
        on_cpu = {n for p in self.graph.partitions if p.device != "NPU" for n in p.nodes}
        self.plainly_read = {t for n in on_cpu for t in self.node_of[n].inputs} | set(self.graph.outputs)
        stored = [p for p in self.meta["partitions"] if p["device"] == "NPU"]
        if len(stored) != len(npu):
            raise VerifyError(f"writing the .xmodel: the graph has {len(npu)} NPU partitions, its .bin {len(stored)}")
        self.stored = iter(stored)

    def build(self) -> XModel:
        read = [name for name in self.graph.inputs if name in self.crossing or name in self.plainly_read]
        for name in read or self.graph.inputs:  # to XIR what nobody reads is an output
            self._input(name)
        constants = constant_partitions(self.graph)
        for index, partition in enumerate(self.graph.partitions):
            if partition.device == "NPU":
                self._npu_partition(index, partition)
            elif index not in constants:
                self._cpu_partition(index, partition)
        returned = self._outputs(constants)
        replaced = BatchAxes(self.builder, self.children, self._added).add()
        returned = [replaced.get(name, name) for name in returned]
        work = sum(int(c.get("workload", 0)) for c in self.children)
        root = XSubgraph(
            "root", {"reserve_const_data": Attr("bool", True), "workload": Attr("uint64", work)}, [], self.children
        )
        attrs: Attrs = {
            "origin": string("npuforge"),
            "tools_commit_id": Attr("map_string_2_string", {"npuforge": str(self.meta.get("tool", ""))}),
            "return_ops": Attr("string_vec", returned),
            "npuforge_mode": string(self.qgraph.mode),
        }
        if 0 < len(read) < len(self.graph.inputs):
            attrs[UNREAD_INPUTS] = Attr("string_vec", [name for name in self.graph.inputs if name not in read])
        return XModel(self.graph.name or "network", self.builder.ops, root, attrs)

    def _added(self, name: str, suffix: str) -> str:
        """What the file has for `name` beside the network's own: a name that no tensor or node of the network has."""
        added = f"{name}{suffix}"
        while added in self.graph.tensors or added in self.node_of:
            added += "'"
        return added

    def _child(self, name: str, attrs: Attrs, ops: list[str], leaves: Iterable[XSubgraph] = ()) -> None:
        """One more child of the root, under a name of its own."""
        taken, number, unlike = {child.name for child in self.children}, 1, name
        while unlike in taken:
            number += 1
            unlike = f"{name}#{number}"
        self.children.append(XSubgraph(unlike, attrs, ops, list(leaves)))

    # ---- network inputs and outputs

    def _input(self, name: str) -> None:
        """One that the NPU reads in 8 bits or bf16 and the CPU as it is enters twice, so that the CPU's nodes lose nothing."""
        border = self.borders.setdefault(name, _Border())
        if name in self.crossing:
            leaf: list[str] = []
            border.fixed = self._fixed_source(name, leaf)
            self._child(f"subgraph_{leaf[0]}", {"device": string(USER)}, leaf)
        if name not in self.crossing or name in self.plainly_read:
            leaf = []
            border.plain[-1] = self._plain_source(name, leaf)
            self._child(f"subgraph_{leaf[0]}", {"device": string(USER)}, leaf)

    def _plain_source(self, name: str, leaf: list[str]) -> str:
        """The input in the ONNX file's own type and order of axes."""
        info = self.graph.tensors[name]
        tensor = plain_tensor(name, nhwc(info.shape) if self._is_nhwc(name) else info.shape, info.dtype)
        if name in self.crossing:
            tensor.name = self._added(name, "_float")
            tensor.attrs[FLOAT_FORM_OF] = string(name)
        attrs = {"shape": integers(tensor.shape), "data_type": string(tensor.dtype)}
        return self.builder.op(tensor.name, "data", tensor, {}, attrs, USER, leaf)

    def _is_nhwc(self, name: str) -> bool:
        return self.graph.input_layout.get(name) == "NHWC" and len(self.graph.tensors[name].shape) == 4

    def _fixed_source(self, name: str, leaf: list[str]) -> str:
        quant = self.qgraph.quant[name]
        tensor = npu_tensor(name, nhwc(self.graph.tensors[name].shape), quant)
        attrs = {"shape": integers(tensor.shape), "data_type": string(tensor.dtype)}
        return self.builder.op(name, "data" if quant.dtype == "bf16" else "data-fix", tensor, {}, attrs, USER, leaf)

    def _outputs(self, constants: dict[int, list[Node]]) -> list[str]:
        """Names of the ops that give the network's outputs as float, in order."""
        leaving = Leaving(self.graph, self.builder, self.children, self._added)
        known = {node.outputs[0]: node for nodes in constants.values() for node in nodes}
        returned = []
        for name in self.graph.outputs:
            border = self.borders.get(name)
            if border is None and name not in known:
                raise VerifyError(f"writing the .xmodel: nothing gives the network output {name!r}")
            if border is None:
                returned.append(leaving.constant(known[name]))
                continue
            source = border.plain.get(self._writer_of(name))
            if source is None:
                returned.append(self._float(name, len(self.graph.partitions), leaving.leaf))
            else:
                returned.append(leaving.plain(name, source))
        if leaving.leaf:
            self._cpu_child("subgraph_outputs", leaving.leaf)
        return returned

    def _writer_of(self, name: str) -> int:
        """The CPU partition that computes `name`, −1 for what the application gives as it is, −2 if neither does."""
        for index, partition in enumerate(self.graph.partitions):
            if partition.device != "NPU" and any(name in self.node_of[n].outputs for n in partition.nodes):
                return index
        return -1 if -1 in self.borders[name].plain else -2

    # ---- CPU partitions

    def _cpu_child(self, name: str, leaf: list[str], attrs: Attrs | None = None) -> None:
        runner = Attr("map_string_2_string", dict.fromkeys(RUNNER_MODES, RUNNER_LIBRARY))
        self._child(
            name, {"device": string(CPU), "runner": runner, "workload": Attr("uint64", 0)} | (attrs or {}), leaf
        )

    def _cpu_partition(self, index: int, partition: Partition) -> None:
        leaf: list[str] = []
        producers: dict[str, str] = {}
        for name in partition.nodes:
            node = self.node_of[name]
            for tensor in node.inputs:
                if tensor and tensor not in producers and tensor not in self.graph.constants:
                    producers[tensor] = self._float(tensor, index, leaf)
            names = {t: self._added(t, "_float") for t in node.outputs if t in self.crossing}
            cpu_ops.emit(cpu_ops.HostNode(node, self.graph, self.builder, leaf, producers, self.open), names)
            self._mark_open(node, producers)
            for tensor in node.outputs:
                if tensor in producers:
                    self.borders.setdefault(tensor, _Border()).plain[index] = producers[tensor]
                if tensor in self.crossing:
                    self._quantise(tensor, producers[tensor], leaf)
        self._cpu_child(f"subgraph_{leaf[0]}", leaf, {"npuforge_partition": integer(index)})

    def _mark_open(self, node: Node, producers: dict[str, str]) -> None:
        """Says which dimensions of a node's outputs are only an upper bound."""
        given, made = self.qgraph.graph.tensors, [t for t in node.outputs if t in producers]
        for tensor in (t for t in made if given[t].shape != self.graph.tensors[t].shape):
            op = next(o for o in reversed(self.builder.ops) if o.name == producers[tensor])
            op.attrs[OPEN_SHAPE] = integers(given[tensor].shape)

    def _float(self, name: str, child: int, leaf: list[str]) -> str:
        """The op with the float form of `name` as the CPU child `child` sees it; what is missing is added to `leaf`."""
        border = self.borders[name]
        if child in border.plain:
            return border.plain[child]
        source = border.plain.get(self._writer_of(name))
        if source is not None:  # a network input, or another CPU partition's result, whatever the NPU reads of it
            if self._is_nhwc(name):
                added = self._added(name, "_nchw" if border.fixed else "_float")
                source = self._transposed(name, source, added, [0, 3, 1, 2], leaf)
                border.plain[child] = source
            return source
        quant = self.qgraph.quant[name]
        inner = (
            child < len(self.graph.partitions) and name in self.graph.outputs
        )  # the network output has the plain name
        own = self._added(name, f"_float_{child}" if inner else "_float")
        shape = nhwc(self.graph.tensors[name].shape)
        flat = shape[1] * shape[2] == 1 or shape[3] == 1
        tensor = XTensor(self._added(name, "_nhwc"), shape, "FLOAT", 32)
        source = self._dequantised(name, border.fixed, quant, tensor, leaf)
        if flat:  # nothing moves: a reshape says so
            target = XTensor(own, list(self.graph.tensors[name].shape), "FLOAT", 32)
            attrs = {"shape": integers(target.shape)}
            border.plain[child] = self.builder.op(
                self._added(name, "_reshape"), "reshape", target, {"input": [source]}, attrs, CPU, leaf
            )
        else:
            border.plain[child] = self._transposed(name, source, own, [0, 3, 1, 2], leaf)
        return border.plain[child]

    def _transposed(self, name: str, source: str, tensor_name: str, order: list[int], leaf: list[str]) -> str:
        n, c, h, w = self.graph.tensors[name].shape
        shape = [n, c, h, w] if order == [0, 3, 1, 2] else [n, h, w, c]
        tensor = XTensor(tensor_name, shape, "FLOAT", 32)
        return self.builder.op(
            self._added(name, "_transpose"),
            "transpose",
            tensor,
            {"input": [source]},
            {"order": integers(order)},
            CPU,
            leaf,
        )

    def _dequantised(self, name: str, source: str, quant: TensorQuant, tensor: XTensor, leaf: list[str]) -> str:
        if quant.fix_point is not None:
            return self.builder.op(
                self._added(name, "_fix2float"),
                "fix2float",
                tensor,
                {"input": [source]},
                _fix(quant.fix_point),
                CPU,
                leaf,
            )
        if quant.dtype == "bf16":
            return self.builder.custom(
                self._added(name, "_cast"), "npuforge::Cast", tensor, [source], {"to": tensor.dtype}, CPU, leaf
            )
        op = self.builder.custom(
            self._added(name, "_dequantize"), "npuforge::Dequantize", tensor, [source], {}, CPU, leaf
        )
        self.builder.ops[-1].attrs |= _scales(quant)
        return op

    def _quantise(self, name: str, source: str, leaf: list[str]) -> None:
        """The int8 NHWC form of what a CPU partition gives to an NPU partition."""
        source = self._transposed(name, source, self._added(name, "_nhwc"), [0, 2, 3, 1], leaf)
        quant = self.qgraph.quant[name]
        tensor = npu_tensor(name, nhwc(self.graph.tensors[name].shape), quant)
        border = self.borders[name]
        if quant.dtype == "bf16":
            values = {"to": tensor.dtype}
            border.fixed = self.builder.custom(
                self._added(name, "_cast"), "npuforge::Cast", tensor, [source], values, CPU, leaf
            )
        elif quant.fix_point is not None:
            attrs = _fix(quant.fix_point)
            border.fixed = self.builder.op(
                self._added(name, "_float2fix"), "float2fix", tensor, {"input": [source]}, attrs, CPU, leaf
            )
        else:
            border.fixed = self.builder.custom(
                self._added(name, "_quantize"), "npuforge::Quantize", tensor, [source], {}, CPU, leaf
            )
            self.builder.ops[-1].attrs |= _scales(quant)

    # ---- NPU partitions

    def _npu_partition(self, index: int, partition: Partition) -> None:
        producers: dict[str, str] = {}
        leaves: list[XSubgraph] = []
        for name in partition.inputs:
            leaf: list[str] = []
            shape = nhwc(self.graph.tensors[name].shape)
            tensor = npu_tensor(self._added(name, "_upload"), shape, self.qgraph.quant[name])
            tensor.attrs |= self.places.pool(name)
            producers[name] = self.builder.op(
                self._added(name, "_upload"), "upload", tensor, {"input": [self.borders[name].fixed]}, {}, DPU, leaf
            )
            leaves.append(XSubgraph(f"subgraph_{leaf[0]}", {}, leaf))
        order = []
        for name in partition.nodes:
            leaf = self._layer(name, partition, producers)
            work = Attr("uint64", 2 * int(self.layers.get(name, {}).get("macs", 0)))
            leaves.append(XSubgraph(f"subgraph_{name}", {"workload": work}, leaf))
            order.append(leaves[-1].name)
        for name in partition.outputs:
            leaf = []
            tensor = npu_tensor(name, nhwc(self.graph.tensors[name].shape), self.qgraph.quant[name])
            fixed = self.builder.op(
                self._added(name, "_download"), "download", tensor, {"input": [producers[name]]}, {}, DPU, leaf
            )
            self.borders.setdefault(name, _Border()).fixed = fixed
            leaves.append(XSubgraph(f"subgraph_{leaf[0]}", {}, leaf))
        attrs = self.places.npu_attrs(next(self.stored), order)
        attrs["npuforge_partition"] = integer(index)
        attrs["workload"] = Attr("uint64", sum(int(leaf_.get("workload", 0)) for leaf_ in leaves))
        self._child(f"subgraph_npu_{index}", attrs, [], leaves)

    def _layer(self, name: str, partition: Partition, producers: dict[str, str]) -> list[str]:
        node = self.node_of[name]
        leaf: list[str] = []
        output = node.outputs[0]
        crossing = output in partition.outputs
        place = self.places.pool(output) if crossing else self.places.trace(name)
        inputs = [producers[t] for t in node.inputs if t and t not in self.graph.constants]
        layer = npu_ops.Layer(
            node,
            self.qgraph,
            self.builder,
            leaf,
            inputs,
            self._added(output, "_npu") if crossing else output,
            place,
            self.places.storage,
        )
        producers[output] = npu_ops.emit(layer)
        return leaf


def _fix(fix_point: int) -> Attrs:
    """Attributes of fix2float and float2fix."""
    attrs = {"fix_point": integer(fix_point), "bit_width": integer(8), "if_signed": Attr("bool", True)}
    return attrs | {"round_mode": string(ROUND_MODE)}


def _scales(quant: TensorQuant) -> Attrs:
    """Attributes of npuforge::Quantize and Dequantize: real = (q − zero_point[c])·scale[c], or (q + 128 − mean[c])·scale[c]."""
    attrs = {"scale": doubles(quant.scale), "zero_point": integers(quant.zero_point)}
    return attrs if quant.image_mean is None else attrs | {"mean": doubles(quant.image_mean)}
