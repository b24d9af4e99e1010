"""The .xmodel writer: what is in the file runs, by XIR's documented arithmetic, to the bits of the integer graph (pow2) and to ONNX Runtime's head."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import FormatError, NpuforgeError, VerifyError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps import generate, write_bin
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.xir.model import XModel, XOp
from npuforge.compile.xir.reader import check_structure, read_xmodel
from npuforge.compile.xir.shapes import shape_problems
from npuforge.compile.xir.validate import problems
from npuforge.compile.xir.writer import build_xmodel, write_xmodel
from npuforge.hw_kernels import arch as arches
from npuforge.hw_kernels.isa.binfile import BinFile, parse_bin
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor
from npuforge.quant.quantize import quantize

ROOT = Path(__file__).parents[2]
MODELS = ROOT.parent / "shared" / "data" / "models"
RNG = np.random.default_rng(5)
SHAPE = (1, 3, 16, 12)


# ---- a network with every NPU operator that XIR has a word for, and a head of plain ONNX
def head_nodes() -> list[onnx.NodeProto]:
    make = helper.make_node
    return [
        make("Transpose", ["h"], ["t"], "t", perm=[0, 2, 3, 1]),
        make("Reshape", ["t", "rows"], ["r"], "r"),
        make("Split", ["r", "sizes"], ["s0", "s1", "s2"], "s", axis=2),
        make("Sigmoid", ["s0"], ["a"], "a"),
        make("Exp", ["s1"], ["e"], "e"),
        make("Mul", ["e", "two"], ["m"], "m"),
        make("Softmax", ["s2"], ["p"], "p", axis=-1),
        make("Slice", ["p", "from", "to", "axes", "steps"], ["q"], "q"),
        make("Concat", ["a", "m", "q"], ["joined"], "joined", axis=-1),
        make("ReduceMax", ["p"], ["best"], "best", axes=[-1], keepdims=0),
        make("ReduceMax", ["p"], ["highest"], "highest", axes=[-1], keepdims=1),
        make("ArgMax", ["p"], ["label"], "label", axis=-1, keepdims=0),
    ]


HEAD_CONSTANTS = {
    "rows": np.array([1, -1, 9], np.int64),
    "sizes": np.array([2, 2, 5], np.int64),
    "two": np.float32(2),
    "from": np.array([1], np.int64),
    "to": np.array([100], np.int64),
    "axes": np.array([2], np.int64),
    "steps": np.array([2], np.int64),
}
HEAD_OUTPUTS = {
    "joined": TensorProto.FLOAT,
    "best": TensorProto.FLOAT,
    "highest": TensorProto.FLOAT,
    "label": TensorProto.INT64,
}


def network() -> onnx.ModelProto:
    make, constants = helper.make_node, dict(HEAD_CONSTANTS)

    def conv(x: str, y: str, c_in: int, c_out: int, k: int, op: str = "Conv", **attrs: Any) -> onnx.NodeProto:
        group = attrs.get("group", 1)
        shape = (c_in, c_out, k, k) if op == "ConvTranspose" else (c_out, c_in // group, k, k)
        constants[f"{y}_w"] = (RNG.normal(size=shape) / np.sqrt(c_in / group * k * k)).astype(np.float32)
        constants[f"{y}_b"] = RNG.normal(size=c_out).astype(np.float32) * 0.3
        return make(op, [x, f"{y}_w", f"{y}_b"], [y], y, kernel_shape=[k, k], **attrs)

    constants["scales"] = np.array([1, 1, 2, 2], np.float32)
    nodes = [
        conv("x", "c1", 3, 10, 3, strides=[2, 1], pads=[1, 0, 1, 2]),
        make("LeakyRelu", ["c1"], ["l1"], "l1", alpha=0.1),
        conv("l1", "d1", 10, 10, 3, group=10, pads=[1, 1, 1, 1]),
        make("Relu", ["d1"], ["r1"], "r1"),
        make("MaxPool", ["r1"], ["m1"], "m1", kernel_shape=[2, 2], strides=[2, 2]),
        conv("m1", "g1", 10, 10, 3, group=2, pads=[2, 2, 2, 2], dilations=[2, 2]),
        make("Clip", ["g1", "zero", "six"], ["k1"], "k1"),
        conv("k1", "up", 10, 10, 3, "ConvTranspose", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        make(
            "Resize",
            ["k1", "", "scales"],
            ["n1"],
            "n1",
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        make("Add", ["up", "n1"], ["sum"], "sum"),
        make("Concat", ["sum", "n1"], ["cat"], "cat", axis=1),
        conv("cat", "h", 20, 9, 1),
    ]
    constants |= {"zero": np.float32(0), "six": np.float32(6)}
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in HEAD_OUTPUTS.items()]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    graph = helper.make_graph(
        [*nodes, *head_nodes()],
        "small",
        [image],
        outputs,
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    )


def graph_of(model: onnx.ModelProto | Path) -> Graph:
    return partition(fuse(fold(import_onnx(model).graph)))


def compiled(graph: Graph, mode: str, arch: str = "nf-b1024") -> tuple[QGraph, BinFile, np.ndarray]:
    """The integer graph, its .bin, one input."""
    rng = np.random.default_rng(0)
    images = [{n: rng.normal(0, 1, graph.tensors[n].shape).astype(np.float32) for n in graph.inputs} for _ in range(2)]
    statistics = calibrate(graph, images, lambda wanted: GraphExecutor(graph, wanted, threads=1).run)
    qgraph = quantize(graph, statistics, mode, alpha=0.75)
    image = write_bin.to_bytes(generate.generate(qgraph, arches.load(arch)))
    return qgraph, parse_bin(image), images[0][graph.inputs[0]]


# ---- an interpreter of XIR's quantised and float operators, written from the vendor's documentation only
def windows(x: np.ndarray, op: XOp, fill: int) -> np.ndarray:
    """[out_h, out_w, kh, kw, c] of an NHWC map."""
    (kw, kh), (sw, sh), (dw, dh) = op.get("kernel"), op.get("stride"), op.get("dilation", [1, 1])
    left, right, top, bottom = op.get("pad", [0, 0, 0, 0])
    padded = np.pad(x[0], ((top, bottom), (left, right), (0, 0)), constant_values=fill)
    out_h, out_w = (padded.shape[0] - (kh - 1) * dh - 1) // sh + 1, (padded.shape[1] - (kw - 1) * dw - 1) // sw + 1
    rows, columns = (
        np.arange(out_h)[:, None] * sh + np.arange(kh) * dh,
        np.arange(out_w)[:, None] * sw + np.arange(kw) * dw,
    )
    return padded[rows[:, None, :, None], columns[None, :, None, :]]


def finish(acc: np.ndarray, exponent: int, op: XOp) -> np.ndarray:
    """saturate8(round half up(nonlinear(acc / 2^exponent)))"""
    real = acc.astype(np.float64) / 2.0**exponent
    word = op.get("nonlinear", "NONE")
    fix = op.tensor.attrs["fix_point"].value
    if word == "RELU":
        real = np.maximum(real, 0)
    elif word == "RELU6":
        real = np.clip(real, 0, 6 * 2.0**fix)
    elif word == "LEAKYRELU":
        real = np.where(real < 0, real * (26 / 256), real)
    else:
        assert word == "NONE"
    return np.clip(np.floor(real + 0.5), -128, 127).astype(np.int64)


def convolution(
    op: XOp, x: np.ndarray, weights: np.ndarray, bias: np.ndarray, fixes: tuple[int, int, int]
) -> np.ndarray:
    fi, fw, fb = fixes
    group = op.get("group", 1)
    if op.type == "transposed-conv2d-fix":
        (kw, kh), (sw, sh), pad = op.get("kernel"), op.get("stride"), op.get("pad")
        stuffed = np.zeros((1, (x.shape[1] - 1) * sh + 1, (x.shape[2] - 1) * sw + 1, x.shape[3]), np.int64)
        stuffed[:, ::sh, ::sw] = x
        around = [kw - 1 - pad[0], kw - 1 - pad[1], kh - 1 - pad[2], kh - 1 - pad[3]]
        plain = XOp("", "", op.tensor, [], {**op.attrs})
        plain.attrs["stride"] = plain.attrs["stride"]._replace(value=[1, 1])
        plain.attrs["pad"] = plain.attrs["pad"]._replace(value=around)
        taps = windows(stuffed, plain, 0)
    else:
        taps = windows(x, op, 0)
    if op.type == "depthwise-conv2d-fix":
        acc = np.einsum("yxhwc,qhwc->yxcq", taps, weights).reshape(*taps.shape[:2], -1)
    else:
        size, each = taps.shape[-1] // group, len(weights) // group
        parts = [
            np.einsum("yxhwi,ohwi->yxo", taps[..., g * size : (g + 1) * size], weights[g * each : (g + 1) * each])
            for g in range(group)
        ]
        acc = np.concatenate(parts, -1)
    shifted = bias.astype(np.float64) * 2.0 ** (fi + fw - fb)
    return finish(acc + shifted, fi + fw - op.tensor.attrs["fix_point"].value, op)[None]


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def execute(model: XModel, image: np.ndarray) -> dict[str, np.ndarray]:
    """Values by op name; `image`: int8 of the only input. Custom operators are left out but for those of the head."""
    values: dict[str, np.ndarray] = {}
    tensors = {op.name: op.tensor for op in model.ops}
    for op in model.ops:
        args = dict(op.args)
        if any(p not in values for p in op.inputs()):
            continue  # behind a custom operator
        inputs = [values[p] for p in args.get("input", [])]
        fix = {
            name: [tensors[p].attrs["fix_point"].value for p in names if "fix_point" in tensors[p].attrs]
            for name, names in args.items()
        }
        if op.type == "data-fix":
            result = image.astype(np.int64)
        elif op.type in ("const", "const-fix"):
            kinds = {"XINT8": "<i1", "XINT32": "<i4", "FLOAT32": "<f4", "INT64": "<i8"}
            result = (
                np.frombuffer(op.get("data"), kinds[op.get("data_type")]).reshape(op.get("shape")).astype(np.float64)
            )
        elif op.type in ("upload", "download"):
            result = inputs[0]
        elif op.type.endswith("conv2d-fix"):
            fixes = (fix["input"][0], fix["weights"][0], fix["bias"][0])
            result = convolution(op, inputs[0], values[args["weights"][0]], values[args["bias"][0]], fixes)
        elif op.type == "pool-fix" and op.get("type") == "MAX":
            result = windows(inputs[0], op, -128).max((2, 3))[None]
        elif op.type == "eltwise-fix" and op.get("type") == "ADD":
            real = sum(x * 2.0**-f for x, f in zip(inputs, fix["input"], strict=True))
            result = finish(real, -op.tensor.attrs["fix_point"].value, op)
        elif op.type in ("concat-fix", "concat"):
            assert len(set(fix["input"])) <= 1
            result = np.concatenate(inputs, op.get("axis"))
        elif op.type == "upsample-fix" and op.get("mode") == "NEAREST":
            w, h = (int(s) for s in op.get("scale"))
            result = inputs[0].repeat(h, 1).repeat(w, 2)
        elif op.type == "fix2float":
            result = inputs[0] * 2.0 ** -op.get("fix_point")
        elif op.type in ("strided_slice", "strided_slice-fix"):
            result = inputs[0][
                tuple(slice(*v) for v in zip(op.get("begin"), op.get("end"), op.get("strides"), strict=True))
            ]
        elif op.type == "transpose":
            result = inputs[0].transpose(op.get("order"))
        elif op.type == "reshape":
            result = inputs[0].reshape(op.get("shape"))
        elif op.type == "reduction_max":
            result = inputs[0].max(tuple(op.get("axis")), keepdims=op.get("keep_dims"))
        elif op.type == "onnx::ReduceMax":
            result = inputs[0].max(tuple(inputs[1].astype(int)), keepdims=bool(op.get("keepdims")))
        elif op.type == "onnx::Softmax":
            result = softmax(inputs[0], op.get("axis"))
        elif op.type in ("sigmoid", "exp", "mul"):
            result = {"sigmoid": lambda a: 1 / (1 + np.exp(-a)), "exp": np.exp, "mul": np.multiply}[op.type](*inputs)
        else:
            continue
        assert list(result.shape) == op.tensor.shape, op.name
        values[op.name] = result
    return values


@pytest.fixture(scope="module")
def small() -> tuple[QGraph, BinFile, np.ndarray]:
    return compiled(graph_of(network()), "pow2")


def test_pow2_file_runs_to_the_bits_of_the_integer_graph(small: tuple[QGraph, BinFile, np.ndarray]) -> None:
    qgraph, binary, image = small
    model = build_xmodel(qgraph, binary)
    executor = IntegerExecutor(qgraph)
    expected = executor.run({"x": image}, wanted=[n.outputs[0] for n in qgraph.graph.nodes if n.device == "NPU"])
    values = execute(model, executor.quantise_input("x", image))
    types = Counter(op.type for op in model.ops)
    for op_type in (
        "conv2d-fix",
        "depthwise-conv2d-fix",
        "transposed-conv2d-fix",
        "pool-fix",
        "eltwise-fix",
        "concat-fix",
        "upsample-fix",
    ):
        assert types[op_type] >= 1, op_type
    for node in qgraph.graph.nodes:
        if node.device == "NPU":
            np.testing.assert_array_equal(values[node.name], expected[node.outputs[0]], err_msg=node.name)
            assert len(np.unique(values[node.name])) > 10  # and it says something


def test_cpu_subgraph_is_onnx_runtimes_head(small: tuple[QGraph, BinFile, np.ndarray]) -> None:
    qgraph, binary, image = small
    model = build_xmodel(qgraph, binary)
    values = execute(model, IntegerExecutor(qgraph).quantise_input("x", image))
    by_tensor = {op.tensor.name: op.name for op in model.ops}
    feed = values[by_tensor["h_float"]].astype(np.float32)
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in HEAD_OUTPUTS.items()]
    inputs = [helper.make_tensor_value_info("h", TensorProto.FLOAT, list(feed.shape))]
    graph = helper.make_graph(
        head_nodes(),
        "head",
        inputs,
        outputs,
        [numpy_helper.from_array(np.asarray(v), k) for k, v in HEAD_CONSTANTS.items()],
    )
    head = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(head.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = dict(zip(HEAD_OUTPUTS, session.run(list(HEAD_OUTPUTS), {"h": feed}), strict=True))
    returned = dict(zip(qgraph.graph.outputs, model.attrs["return_ops"].value, strict=True))
    for name in ("joined", "best", "highest"):
        np.testing.assert_allclose(values[returned[name]], expected[name], atol=1e-5)
    label = next(op for op in model.ops if op.name == returned["label"])
    assert label.type == "onnx::ArgMax" and label.tensor.dtype == "INT64" and label.get("keepdims") == 0
    custom = {op.type for op in model.ops if op.get("device") == "CPU" and "::" in op.type}
    assert custom == {
        "onnx::ArgMax",
        "onnx::Softmax",
        "onnx::ReduceMax",
    }  # the vendor's tasks of two are wrong (test_vendor_tasks.py)
    highest = next(op for op in model.ops if op.name == returned["highest"])
    assert highest.type == "reduction_max" and highest.get("axis") == [2] and highest.get("keep_dims") is True


def check_file(model: XModel, qgraph: QGraph, binary: BinFile) -> None:
    """What every written file must satisfy."""
    check_structure(model)
    assert problems(model) == [] and shape_problems(model) == []
    assert model.root is not None
    leaves = [op for leaf in model.root.leaves() for op in leaf.ops]
    assert sorted(leaves) == sorted(op.name for op in model.ops)  # every op in one leaf
    assert len({op.tensor.name for op in model.ops}) == len(model.ops)
    meta = binary.json()
    stored = [p for p in meta["partitions"] if p["device"] == "NPU"]
    code = binary["instructions"].data
    for subgraph, record in zip(model.by_device("DPU"), stored, strict=True):
        first, count = record["first_instruction"], record["instruction_count"]
        assert (
            subgraph.get("mc_code") == code[128 * first : 128 * (first + count)]
            and len(subgraph.get("mc_code")) == 128 * count
        )
        assert parse_bin(subgraph.get("reg_id_to_parameter_value")["REG_0"]).json() == meta
        assert subgraph.get("reg_id_to_size") == {"REG_0": len(binary.image), "REG_1": meta["pool_size"]}
        assert (
            f"{subgraph.get('dpu_fingerprint'):016x}" == meta["fingerprint"]
            and subgraph.get("dpu_name") == meta["arch"]["name"]
        )
        assert set(subgraph.get("runner").values()) == {"libnpuforge-runner.so"}
        layers = subgraph.get("children_topological_sort")
        assert [
            f"subgraph_{n.name}" for n in qgraph.graph.nodes if n.name in {c.removeprefix("subgraph_") for c in layers}
        ] == layers
        names = {op.tensor.name: op for op in model.ops}
        for tensor in record["inputs"] + record["outputs"]:
            n, c, h, w = qgraph.graph.tensors[tensor].shape
            assert names[tensor].tensor.shape == [n, h, w, c] and names[tensor].tensor.dtype == "XINT8"
    for op in model.ops:
        quantised = op.tensor.data_type == "XINT"
        assert ("if_signed" in op.tensor.attrs) == quantised
        if op.type == "const-fix" and "ddr_addr" in op.tensor.attrs:
            kind = "weight" if op.tensor.bit_width == 8 else "bias"
            assert any(
                s.offset == op.tensor.attrs["ddr_addr"].value and s.name.endswith(kind)
                for s in binary.sections.values()
            )
    work = sum(2 * layer["macs"] for layer in meta["layers"] if layer["name"] in {n.name for n in qgraph.graph.nodes})
    assert model.root.get("workload") == work > 0


@pytest.mark.parametrize("mode", ["fine", "pow2"])
def test_bundled_network_both_modes(mode: str, tmp_path: Path) -> None:
    qgraph, binary, _ = compiled(graph_of(ROOT / "scripts" / "demo_data" / "demo.onnx"), mode)
    path = tmp_path / "demo.xmodel"
    written = write_xmodel(qgraph, binary, path)
    model = read_xmodel(path)
    assert model == written
    check_file(model, qgraph, binary)
    assert [c.get("device") for c in model.root.children] == ["USER", "DPU", "CPU"]  # type: ignore[union-attr]
    decodes = [op for op in model.ops if op.type == "npuforge::YoloDecode"]
    assert [op.get("output_index") for op in decodes] == [0, 1, 2]
    assert [op.tensor.name for op in decodes] == ["boxes", "scores", "classes"]
    assert (
        decodes[0].get("num_classes") == 6
        and len(decodes[0].get("anchors")) == 12
        and decodes[0].get("strides") == [16, 32]
    )
    assert model.attrs["return_ops"].value == [op.name for op in decodes]
    image = next(op for op in model.ops if op.type == "data-fix")
    assert ("fix_point" in image.tensor.attrs) == (mode == "pow2")
    if mode == "fine":  # the scales are in the file
        head = next(op for op in model.ops if op.tensor.name == "head16")
        np.testing.assert_array_equal(head.tensor.attrs["npuforge_scale"].value, qgraph.quant["head16"].scale)
        assert head.tensor.attrs["npuforge_zero_point"].value == qgraph.quant["head16"].zero_point.tolist()
        assert "fix_point" not in head.tensor.attrs


def test_cpu_node_between_two_npu_partitions() -> None:
    """Atan has no NPU form: int8 → float → Sin → float → int8, in both directions named after the tensor."""
    make = helper.make_node
    weights = {n: RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) for n in ("w1", "w2")}
    nodes = [
        make("Conv", ["x", "w1"], ["a"], "a", pads=[1, 1, 1, 1]),
        make("Atan", ["a"], ["b"], "b"),
        make("Conv", ["b", "w2"], ["y"], "y", pads=[1, 1, 1, 1]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 6, 5]) for n in ("x", "y")]
    graph = helper.make_graph(
        nodes, "split", values[:1], values[1:], [numpy_helper.from_array(v, k) for k, v in weights.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    for mode, ops in (("fine", ("npuforge::Dequantize", "npuforge::Quantize")), ("pow2", ("fix2float", "float2fix"))):
        qgraph, binary, _ = compiled(graph_of(model), mode)
        written = build_xmodel(qgraph, binary)
        check_file(written, qgraph, binary)
        assert [c.get("device") for c in written.root.children] == ["USER", "DPU", "CPU", "DPU", "CPU"]  # type: ignore[union-attr]
        middle = written.root.children[2]  # type: ignore[union-attr]
        by_name = {op.name: op for op in written.ops}
        assert [by_name[n].type for n in middle.ops] == [ops[0], "transpose", "onnx::Atan", "transpose", ops[1]]
        assert by_name[middle.ops[-1]].tensor.name == "b" and by_name[middle.ops[-1]].tensor.shape == [1, 6, 5, 4]
        assert by_name[middle.ops[2]].tensor.shape == [1, 4, 6, 5]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not MODELS.is_dir(), reason=f"{MODELS} is absent")
@pytest.mark.parametrize("name", ["yolo_fastest_1.1", "yunet_n_320_320", "nanodet_m"])
def test_published_networks(name: str) -> None:
    qgraph, binary, _ = compiled(graph_of(MODELS / f"{name}.onnx"), "fine", "nf-b4096")
    check_file(build_xmodel(qgraph, binary), qgraph, binary)


def test_nothing_is_half_written(small: tuple[QGraph, BinFile, np.ndarray], tmp_path: Path) -> None:
    qgraph, binary, _ = small
    with pytest.raises(NpuforgeError, match="cannot be written"):
        write_xmodel(qgraph, binary, tmp_path / "absent" / "net.xmodel")
    target = tmp_path / "net.xmodel"
    target.mkdir()  # a folder is in the way: the rename fails
    with pytest.raises(NpuforgeError, match="cannot be written"):
        write_xmodel(qgraph, binary, target)
    assert [p.name for p in tmp_path.iterdir()] == ["net.xmodel"] and not list(target.iterdir())


def test_bin_of_another_network_is_refused(small: tuple[QGraph, BinFile, np.ndarray]) -> None:
    qgraph, binary, _ = small
    graph = qgraph.graph
    without = replace(qgraph, graph=replace(graph, partitions=[p for p in graph.partitions if p.device == "CPU"]))
    with pytest.raises(VerifyError, match=r"0 NPU partitions, its \.bin 1"):
        build_xmodel(without, binary)
    damaged = bytearray(binary.image)
    damaged[300] ^= 1
    with pytest.raises(FormatError):
        build_xmodel(qgraph, bytes(damaged))
