"""The quantised network as the vendor's compiler takes it: XIR's float operators in NHWC with `fix` nodes (8 bits, DPU_ROUND) behind every value that the
integers round: inputs, weights, biases, outputs of every node of the DPU. Nodes for the CPU are XIR's float operators in ONNX's axis order behind them.

A value's fix node is `<tensor>_fix`. A network output is the fix node of what the DPU computes, and the float op in ONNX's axis order of anything else. A network
input that both sides read enters twice: the vendor's compiler makes an input and its fix node one int8 tensor, which would leave the CPU nothing else to read.
The file has no subgraphs: dividing the network is the vendor's compiler's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from npuforge.compile.dpu.host_activations import in_xir_terms
from npuforge.compile.dpu.limits import ALONE, MOVES, activation_word, xir_operator
from npuforge.compile.ir.errors import QuantisationError, VerifyError
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import ConvParams, OutputStage, QGraph
from npuforge.compile.xir import cpu_ops
from npuforge.compile.xir.bounds import bounded
from npuforge.compile.xir.builder import ROUND_MODE, Builder, dtype_of, floats, integer, integers, stored_shape, string
from npuforge.compile.xir.model import FLOAT_FORM_OF, Attr, Attrs, XModel, XSubgraph, XTensor, to_message
from npuforge.compile.xir.npu_ops import nhwc, weight_fix_point, window_attrs
from npuforge.compile.xir.reader import check_structure
from npuforge.compile.xir.shapes import shape_problems
from npuforge.compile.xir.validate import check_schema

HARD_SWISH_FIX_POINT = 5  # the finest one of an int8 input of HardSwish
_ACTIVATIONS = {"Relu": "relu", "Relu6": "relu6", "HardSwish": "hard-swish", "LeakyRelu": "leaky-relu"}


def fix_attrs(fix_point: int) -> Attrs:
    """Attributes of a `fix` op: 8 bits, signed, floor(x + 1/2)."""
    signed = Attr("bool", True)
    return {"fix_point": integer(fix_point), "bit_width": integer(8), "round_mode": string(ROUND_MODE)} | {
        "if_signed": signed
    }


def build_fix_form(qgraph: QGraph) -> XModel:
    """The model of a `pow2` graph, checked against XIR's operator table and shape rules."""
    model = _FixWriter(qgraph).build()
    check_structure(model)
    check_schema(model)
    wrong = shape_problems(model)
    if wrong:
        raise VerifyError(f"writing the fix form: {wrong[0]}")
    return model


def nhwc_outputs(model: XModel, outputs: Sequence[str]) -> list[str]:
    """Those of the network's outputs that the file gives as N, H, W, C. All others have ONNX's order of axes."""
    kinds = {op.name: op.type for op in model.ops}
    return [t for t, op in zip(outputs, model.attrs["return_ops"].value, strict=True) if kinds[op] == "fix"]


def float_inputs(model: XModel) -> dict[str, str]:
    """`data` op -> network input, for those that give the CPU in float and in ONNX's order of axes what another one gives the DPU."""
    found = {op.name: op.tensor.attrs.get(FLOAT_FORM_OF) for op in model.ops if op.type == "data"}
    return {name: str(attr.value) for name, attr in found.items() if attr is not None}


def write_fix_form(qgraph: QGraph, path: Path) -> XModel:
    """Writes the file and returns what is in it."""
    model = build_fix_form(qgraph)
    path.write_bytes(to_message(model).SerializeToString(deterministic=True))
    return model


def weights_and_bias(node: Node, qgraph: QGraph) -> tuple[np.ndarray, int, np.ndarray, int]:
    """Integers and fix points of a convolution: weights int8 [O, kH, kW, I], bias int8 [O]."""
    params, quant = qgraph.params[node.name], qgraph.quant
    assert isinstance(params, ConvParams) and isinstance(params.stage, OutputStage)
    fix_in, fix_out = quant[node.inputs[0]].fix_point, quant[node.outputs[0]].fix_point
    assert fix_in is not None and fix_out is not None
    table = params.stage.fraction_bits if params.stage.kind == "table" else None
    fix_weight = weight_fix_point(params, fix_in, fix_out, table)
    bias, fix_bias = params.bias.astype(np.int64), fix_in + fix_weight
    while bias.max(initial=0) > 127 or bias.min(initial=0) < -128:
        if (bias & 1).any():
            raise QuantisationError(f"node {node.name}: its bias is no 8-bit number; quantise with mode pow2")
        bias, fix_bias = bias >> 1, fix_bias - 1
    return params.weight, fix_weight, bias.astype(np.int8), fix_bias


class _FixWriter:
    def __init__(self, qgraph: QGraph) -> None:
        self.qgraph, self.graph = qgraph, in_xir_terms(bounded(qgraph.graph))
        self.builder = Builder()
        self.leaf: list[str] = []
        on_dpu = [node for node in self.graph.nodes if node.device == "NPU"]
        self.of_dpu = {t for node in on_dpu for t in node.outputs}
        self.read_by_dpu = {t for node in on_dpu for t in node.inputs}
        self.read_on_host = {t for node in self.graph.nodes if node.device != "NPU" for t in node.inputs}
        self.read_on_host |= set(self.graph.outputs)
        self.sources: dict[str, str] = {}  # network inputs as they enter
        self.fixed: dict[str, str] = {}  # tensor -> the `fix` op that gives it in NHWC
        self.host: dict[str, str] = {}  # tensor or constant -> the op that gives it in ONNX's axis order

    def build(self) -> XModel:
        for name in self.graph.inputs:
            self._input(name)
        for name in self.graph.inputs:  # behind all inputs, which keep their names
            if name not in self.host and name in self.read_by_dpu and name in self.read_on_host:
                self._float_form(name)
        for node in self.graph.nodes:
            if node.device == "NPU":
                self._node(node)
            else:
                for name in node.inputs:
                    if name and name not in self.graph.constants:
                        self._on_host(name)
                cpu_ops.emit(cpu_ops.HostNode(node, self.graph, self.builder, self.leaf, self.host), {})
        returned = [self.fixed[t] if t in self.of_dpu else self._leaving(t) for t in self.graph.outputs]
        for op in self.builder.ops:
            op.attrs.pop("device")  # the vendor's compiler decides
        attrs: Attrs = {"origin": string("npuforge"), "return_ops": Attr("string_vec", returned)}
        return XModel(self.graph.name or "network", self.builder.ops, XSubgraph("root"), attrs)

    def _op(self, name: str, kind: str, tensor: XTensor, args: dict[str, Sequence[str]], attrs: Attrs) -> str:
        return self.builder.op(name, kind, tensor, args, attrs, cpu_ops.DEVICE, self.leaf)

    def _float(self, name: str, tensor: str) -> XTensor:
        """A float tensor in NHWC with the shape of `tensor`."""
        return XTensor(name, nhwc(self.graph.tensors[tensor].shape), "FLOAT", 32)

    def _input(self, name: str) -> None:
        info = self.graph.tensors[name]
        images = len(info.shape) == 4
        kind, width = dtype_of(info.dtype)
        tensor = XTensor(name, nhwc(info.shape) if images else stored_shape(info.shape, name), kind, width)
        self.sources[name] = self._data(tensor)
        if not images:
            self.host[name] = self.sources[name]

    def _float_form(self, name: str) -> None:
        info, attrs = self.graph.tensors[name], {FLOAT_FORM_OF: string(name)}
        tensor = XTensor(f"{name}_float", list(info.shape), *dtype_of(info.dtype), attrs)
        self.host[name] = self._data(tensor)

    def _data(self, tensor: XTensor) -> str:
        attrs = {"shape": integers(tensor.shape), "data_type": string(tensor.dtype)}
        return self._op(tensor.name, "data", tensor, {}, attrs)

    def _transposed(self, name: str, source: str, order: list[int], suffix: str) -> str:
        shape = self.graph.tensors[name].shape
        tensor = XTensor(f"{name}_{suffix}", nhwc(shape) if order[1] == 2 else list(shape), "FLOAT", 32)
        return self._op(f"{name}_{suffix}", "transpose", tensor, {"input": [source]}, {"order": integers(order)})

    def _on_host(self, name: str) -> str:
        """The op that gives a tensor in ONNX's axis order; of a network input the values as they are given."""
        if name not in self.host:
            source = self.sources.get(name) or self.fixed[name]
            self.host[name] = self._transposed(name, source, [0, 3, 1, 2], "nchw")
        return self.host[name]

    def _leaving(self, name: str) -> str:
        """The op that gives a network output in ONNX's axis order: XIR takes a tensor that its own subgraph reads for an inner one, so that an `identity` must lead it out."""
        source = self._on_host(name)
        op = next(op for op in self.builder.ops if op.name == source)
        if op.type == "data" or not any(source in other.inputs() for other in self.builder.ops):
            return source
        tensor = replace(op.tensor, name=f"{op.tensor.name}_output")
        return self._op(f"{source}_output", "identity", tensor, {"input": [source]}, {})

    def _on_dpu(self, name: str) -> str:
        """The `fix` op that gives a tensor in NHWC."""
        if name not in self.fixed:
            source = self.sources.get(name) or self._transposed(name, self.host[name], [0, 2, 3, 1], "nhwc")
            self._fix(name, source)
        return self.fixed[name]

    def _fix(self, name: str, source: str) -> None:
        fix_point = self.qgraph.quant[name].fix_point
        assert fix_point is not None
        own = f"{name}_fix"
        self.fixed[name] = self._op(own, "fix", self._float(own, name), {"input": [source]}, fix_attrs(fix_point))

    def _constant(self, name: str, value: np.ndarray, fix_point: int) -> str:
        """Integers as the float constant that they mean, and its `fix` op."""
        real = np.ldexp(value.astype(np.float32), -fix_point)
        source = self.builder.constant(name, real, cpu_ops.DEVICE, self.leaf)
        tensor = XTensor(f"{name}_fix", list(value.shape), "FLOAT", 32)
        return self._op(f"{name}_fix", "fix", tensor, {"input": [source]}, fix_attrs(fix_point))

    def _node(self, node: Node) -> None:
        kind, output = xir_operator(node, self.graph), node.outputs[0]
        inputs = [self._on_dpu(t) for t in node.inputs if t and t not in self.graph.constants]
        args: dict[str, Sequence[str]] = {"input": inputs}
        if kind == MOVES:
            self._fix(output, self._moves(node, inputs[0]))
            return
        attrs = {} if kind in ALONE.values() else self._attrs(node, kind)
        if kind.endswith("conv2d"):
            weight, fix_weight, bias, fix_bias = weights_and_bias(node, self.qgraph)
            if (
                kind == "depthwise-conv2d"
            ):  # [multiplier, kH, kW, C]; channel c*multiplier + q reads weights[q, :, :, c]
                channels = self.graph.tensors[node.inputs[0]].shape[1]
                weight = weight[..., 0].reshape(channels, -1, *weight.shape[1:3]).transpose(1, 2, 3, 0)
            args["weights"] = [self._constant(f"{node.name}/weights", np.ascontiguousarray(weight), fix_weight)]
            args["bias"] = [self._constant(f"{node.name}/bias", bias, fix_bias)]
        word = activation_word(node.activation)
        if kind in ALONE.values():
            last = inputs[0]
        else:
            last = self._op(node.name, kind, self._float(f"{output}_{kind}", output), args, attrs)
        if word == "HardSwish" and kind not in ALONE.values():
            last = self._before_hard_swish(node, last)
        if word != "none":
            slope: Attrs = {"alpha": Attr("float", float(node.activation.alpha))} if word == "LeakyRelu" else {}
            name = f"{node.name}/{_ACTIVATIONS[word]}"
            last = self._op(name, _ACTIVATIONS[word], self._float(name, output), {"input": [last]}, slope)
        self._fix(output, last)

    def _moves(self, node: Node, source: str) -> str:
        """Channels by a convolution over blocks (1 x 1 for a selection): the weight of what is taken is 64 at 2^-6, so that its integers pass unchanged."""
        output, channels = node.outputs[0], self.graph.tensors[node.inputs[0]].shape[1]
        block = int(node.attrs.get("blocksize", 1))
        taken = [int(i) for i in node.attrs.get("indices", range(block * block * channels))]
        weights = np.zeros((len(taken), block, block, channels), np.int8)
        for channel, index in enumerate(taken):
            if index >= 0:  # -1 is a channel of zeros
                weights[channel, index // channels // block, index // channels % block, index % channels] = 64
        weight = self._constant(f"{node.name}/weights", weights, 6)
        args: dict[str, Sequence[str]] = {"input": [source], "weights": [weight]}
        sizes = {"kernel": [block] * 2, "stride": [block] * 2, "pad": [0] * 4, "dilation": [1, 1]}
        attrs = {name: integers(values) for name, values in sizes.items()} | {"pad_mode": string("FLOOR")}
        return self._op(node.name, "conv2d", self._float(f"{output}_conv2d", output), args, attrs)

    def _before_hard_swish(self, node: Node, source: str) -> str:
        """The DPU's HardSwish takes 8 bits. At 2^-5 they end at ±4, below which HardSwish is 0; above, its output ends where they do."""
        output = node.outputs[0]
        fix_point = self.qgraph.quant[output].fix_point
        assert fix_point is not None
        own = f"{node.name}/fix"
        attrs = fix_attrs(min(fix_point, HARD_SWISH_FIX_POINT))
        return self._op(own, "fix", self._float(own, output), {"input": [source]}, attrs)

    def _attrs(self, node: Node, kind: str) -> Attrs:
        x, y = self.graph.tensors[node.inputs[0]].shape, self.graph.tensors[node.outputs[0]].shape
        if kind == "concat":
            return {"axis": integer(3)}
        if kind == "resize":
            linear = node.attrs.get("mode", "nearest") == "linear"
            centers = linear and node.attrs.get("coordinate_transformation_mode", "half_pixel") != "asymmetric"
            mode = string("BILINEAR" if linear else "NEAREST")
            attrs = {"mode": mode, "scale": floats([y[3] // x[3], y[2] // x[2]])}
            return attrs | {"align_corners": Attr("bool", False), "half_pixel_centers": Attr("bool", centers)}
        if kind == "strided_slice":
            first, n = int(node.attrs["indices"][0]), y[1]
            limits = {"begin": [0, 0, 0, first], "end": [x[0], x[2], x[3], first + n], "strides": [1, 1, 1, 1]}
            return {name: integers(values) for name, values in limits.items()}
        if kind in ("add", "mul"):
            return {}
        attrs = window_attrs(node) | {"pad_mode": string("FLOOR")}
        if kind == "avgpool2d":
            return attrs | {"count_include_pad": Attr("bool", True)}
        if kind == "maxpool2d":
            return attrs
        dilation_h, dilation_w = node.attrs.get("dilations", [1, 1])
        if kind == "transposed-conv2d":
            end_h, end_w = node.attrs.get("output_padding", [0, 0])
            left, right, top, bottom = attrs["pad"].value
            attrs["pad"] = integers([left, right - end_w, top, bottom - end_h])
        return attrs | {"dilation": integers([dilation_w, dilation_h])}
