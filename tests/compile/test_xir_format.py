"""The .xmodel container: schema against protoc, real files of the vendor's compiler, structure faults, byte-level mutations."""

import copy
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import Attr, XModel, XOp, XSubgraph, XTensor, from_message, to_message
from npuforge.compile.xir.reader import check_structure, parse_xmodel, read_xmodel
from npuforge.compile.xir.schema import PROTO_FILE, file_descriptor, message_class
from npuforge.compile.xir.validate import SUBGRAPH_ATTRS, check_schema, operator_table, problems

SAMPLES = Path(__file__).parents[3] / "shared" / "xir" / "samples"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"{SAMPLES} is absent")
EVERY_KIND = {
    "bool": True,
    "int32": -5,
    "uint32": 4_000_000_000,
    "int64": -(1 << 40),
    "uint64": 1 << 63,
    "float": 0.5,
    "double": 0.1,
    "string": "naïve",
    "bytes": b"\x00\xff",
    "bool_vec": [True, False],
    "int32_vec": [-1, 2],
    "uint32_vec": [7],
    "int64_vec": [],
    "uint64_vec": [1 << 50],
    "float_vec": [1.5, -0.25],
    "double_vec": [0.3],
    "string_vec": ["a", ""],
    "bytes_vec": [b"x", b""],
    "map_string_2_int32": {"a": -1},
    "map_string_2_uint32": {"a": 1},
    "map_string_2_int64": {"a": -(1 << 33)},
    "map_string_2_uint64": {"a": 1 << 33},
    "map_string_2_string": {"run": "lib.so", "sim": ""},
    "map_string_2_bytes": {"REG_0": b"\x01\x02"},
    "map_string_2_int32_vec": {"a": [1, -2], "b": []},
    "map_string_2_uint32_vec": {"a": [1]},
    "map_string_2_int64_vec": {"a": [-1]},
    "map_string_2_uint64_vec": {"a": [1]},
    "map_string_2_string_vec": {"a": ["x"]},
}


def source(name: str, op_type: str, shape: list[int], **attrs: Attr) -> XOp:
    attrs |= {"shape": Attr("int32_vec", shape), "data_type": Attr("string", "XINT8")}
    return XOp(name, op_type, XTensor(f"{name}_t", shape, "XINT", 8), [], attrs)


def small() -> XModel:
    """data-fix -> conv2d-fix (weights, bias) -> pool-fix -> custom op, in three devices; every attribute kind somewhere."""
    pairs = {"kernel": Attr("int32_vec", [3, 3]), "stride": Attr("int32_vec", [1, 1])}
    conv = XOp(
        "conv",
        "conv2d-fix",
        XTensor("conv_t", [1, 4, 4, 2], "XINT", 8),
        [("input", ["in"]), ("weights", ["w"]), ("bias", ["b"])],
    )
    conv.attrs = pairs | {"pad": Attr("int32_vec", [1, 1, 1, 1])}
    pool = XOp("pool", "pool-fix", XTensor("pool_t", [1, 2, 2, 2], "XINT", 8), [("input", ["conv"])])
    pool.attrs = pairs | {"type": Attr("string", "MAX")}
    custom = XOp("mine", "com.example::Mine", XTensor("mine_t", [1, 8], "FLOAT", 32), [("input", ["pool", "w"])])
    custom.attrs = {"shape": Attr("int32_vec", [1, 8]), "data_type": Attr("string", "FLOAT32")}
    custom.attrs |= {k: Attr(k, v) for k, v in EVERY_KIND.items()}
    weights = source("w", "const-fix", [2, 3, 3, 3], data=Attr("bytes", bytes(range(54))))
    bias = source("b", "const-fix", [2], data=Attr("bytes", b""))
    layer = XSubgraph("layer", {}, ["w", "b", "conv"])
    dpu = XSubgraph("npu", {"device": Attr("string", "DPU")}, [], [layer, XSubgraph("layer2", {}, ["pool"])])
    dpu.attrs["children_topological_sort"] = Attr("string_vec", ["layer", "layer2"])
    runner = {"runner": Attr("map_string_2_string", {"run": "lib.so"})}
    dpu.attrs |= runner | {"dpu_name": Attr("string", "mine")}
    user = XSubgraph("inputs", {"device": Attr("string", "USER")}, ["in"])
    root = XSubgraph(
        "root", {}, [], [user, dpu, XSubgraph("host", {"device": Attr("string", "CPU")} | runner, ["mine"])]
    )
    ops = [source("in", "data-fix", [1, 4, 4, 3]), weights, bias, conv, pool, custom]
    return XModel("small", ops, root, {"return_ops": Attr("string_vec", ["mine"])})


def serialised(model: XModel) -> bytes:
    return to_message(model).SerializeToString(deterministic=True)


def test_schema_is_what_protoc_makes_of_the_file(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    from google.protobuf import descriptor_pb2

    out = tmp_path / "set.pb"
    assert protoc.main(["protoc", f"-I{PROTO_FILE.parent}", f"--descriptor_set_out={out}", str(PROTO_FILE)]) == 0
    expected = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    for message in expected.message_type:
        for field in (*message.field, *(f for n in message.nested_type for f in n.field)):
            field.ClearField("json_name")
    assert file_descriptor() == expected


def test_every_attribute_kind_survives() -> None:
    kinds = {f.name.removesuffix("_value") for f in message_class("AttrValue").DESCRIPTOR.fields}
    assert kinds == set(EVERY_KIND) and len(kinds) == 29
    model = small()
    again = parse_xmodel(serialised(model))
    assert again == model
    assert problems(again) == []


@needs_samples
@pytest.mark.parametrize("name", ["pt_custom_op", "tf2_custom_op"])
def test_real_files_read_validate_and_round_trip(name: str) -> None:
    path = SAMPLES / f"{name}.xmodel"
    model = read_xmodel(path)
    assert to_message(model) == message_class("Graph").FromString(path.read_bytes())
    assert problems(model) == []
    assert {c.get("device") for c in model.root.children} == {"USER", "CPU", "DPU"}  # type: ignore[union-attr]
    for subgraph in model.by_device("DPU"):
        assert subgraph.get("mc_code") and subgraph.get("dpu_fingerprint") == 0x901400044000E44
    customs = {op.type for op in model.ops if op.type not in operator_table()}
    assert customs == {"PPScatterV2"} if name == "pt_custom_op" else {"Mylayer"}


@needs_samples
def test_operator_table_is_the_one_in_real_files() -> None:
    """The files carry the library's own 106 definitions; names, counts, wire types, lengths and requiredness must agree."""
    definitions = {
        d.name: d for d in read_xmodel(SAMPLES / "pt_custom_op.xmodel").definitions if d.name != "PPScatterV2"
    }
    table = operator_table()
    assert set(table) == set(definitions) and len(table) == 106
    for name, definition in definitions.items():
        assert table[name]["args"] == {
            a.name: ("1", "0..1", "0..n", "1..n")[a.occur_type] for a in definition.input_args
        }
        for attr in definition.attrs:
            rule = table[name]["attrs"][attr.name]
            assert rule["type"] == attr.default_value.WhichOneof("value").removesuffix("_value")
            assert rule.get("required", False) == (attr.occur_type == 0)
            assert rule.get("length", 0) == (attr.list_length if rule["type"].endswith("_vec") else 0)
        assert len(table[name]["attrs"]) == len(definition.attrs)


def unknown_producer(m: XModel) -> None:
    m.ops[4].args = [("input", ["nowhere"])]


def wrong_order(m: XModel) -> None:
    m.ops[3], m.ops[4] = m.ops[4], m.ops[3]


def same_op_name(m: XModel) -> None:
    m.ops[4].name = "conv"


def same_tensor_name(m: XModel) -> None:
    m.ops[4].tensor.name = "conv_t"


def no_bits(m: XModel) -> None:
    m.ops[0].tensor.bit_width = 0


def zero_dimension(m: XModel) -> None:
    m.ops[0].tensor.shape[1] = 0


def negative_dimension(m: XModel) -> None:
    m.ops[0].tensor.shape[1] = -1


def short_constant(m: XModel) -> None:
    m.ops[1].attrs["data"] = Attr("bytes", b"abc")


def private_attribute(m: XModel) -> None:
    m.ops[0].attrs["__x"] = Attr("bool", True)


def leaf_and_parent(m: XModel) -> None:
    m.root.children[1].ops = ["mine"]  # type: ignore[union-attr]


def empty_leaf(m: XModel) -> None:
    m.root.children[0].ops = []  # type: ignore[union-attr]


def op_in_two_subgraphs(m: XModel) -> None:
    m.root.children[0].ops = ["in", "mine"]  # type: ignore[union-attr]


def unknown_op_in_subgraph(m: XModel) -> None:
    m.root.children[0].ops = ["in", "gone"]  # type: ignore[union-attr]


def unknown_child_in_order(m: XModel) -> None:
    m.root.children[1].attrs["children_topological_sort"] = Attr("string_vec", ["layer", "layer9"])  # type: ignore[union-attr]


def circle(m: XModel) -> None:
    m.root.children[0].ops = ["in", "pool"]  # type: ignore[union-attr]
    m.root.children[1].children.pop()  # type: ignore[union-attr]
    del m.root.children[1].attrs["children_topological_sort"]  # type: ignore[union-attr]
    m.ops[5].args = [("input", ["pool"])]
    m.root.children[2].ops = ["mine", "w"]  # type: ignore[union-attr]
    m.root.children[1].children[0].ops = ["b", "conv"]  # type: ignore[union-attr]


FAULTS: dict[Callable[[XModel], None], str] = {
    unknown_producer: "op 'pool' .*'nowhere', which is no op before it",
    wrong_order: "op 'pool' .*'conv', which is no op before it",
    same_op_name: "op 'conv' .*appears twice",
    same_tensor_name: "'conv' and 'pool' both have a tensor 'conv_t'",
    no_bits: "op 'in' .*XINT0",
    zero_dimension: "op 'in' .*every dimension",
    negative_dimension: "op 'in' .*every dimension",
    short_constant: "op 'w' .*3 bytes of data.* needs 54",
    private_attribute: "op 'in' .*'__x'",
    leaf_and_parent: "subgraph 'npu' has 1 ops and 2 children",
    empty_leaf: "subgraph 'inputs' has 0 ops and 0 children",
    op_in_two_subgraphs: "op 'mine' is in the subgraphs",
    unknown_op_in_subgraph: "'gone', which is no op",
    unknown_child_in_order: "'layer9'",
    circle: "depend on each other in a circle",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_structure_faults_are_named(fault: Callable[[XModel], None]) -> None:
    model = small()
    check_structure(model)
    fault(model)
    with pytest.raises(FormatError, match=FAULTS[fault]) as caught:
        parse_xmodel(serialised(model), "file.xmodel")
    assert str(caught.value).startswith("file.xmodel: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [
        (3, lambda o: o.attrs.pop("kernel"), "attribute 'kernel' is missing"),
        (3, lambda o: o.attrs.update(kernel=Attr("int64_vec", [3, 3])), "'kernel' is int64_vec; expected int32_vec"),
        (3, lambda o: o.attrs.update(kernel=Attr("int32_vec", [3])), "'kernel' has 1 values; expected 2"),
        (3, lambda o: o.args.pop(1), "'weights' has 0 producers; expected 1"),
        (3, lambda o: o.args.append(("scale", ["w"])), "argument 'scale' is not declared"),
        (3, lambda o: o.attrs.update(nonlinear=Attr("string", "HSWISH")), "nonlinear 'HSWISH' needs .*shift_hswish"),
        (3, lambda o: o.attrs.update(nonlinear=Attr("string", "FOO")), "nonlinear 'FOO'; expected one of NONE, RELU, "),
        (
            3,
            lambda o: o.tensor.attrs.update(fix_point=Attr("double", 3.0)),
            "'fix_point' of its tensor is double; expected int32",
        ),
        (
            3,
            lambda o: o.tensor.attrs.update(stride=Attr("int64_vec", [1])),
            "'stride' of its tensor is int64_vec; expected",
        ),
        (
            4,
            lambda o: (setattr(o, "type", "concat-fix"), o.attrs.update(axis=Attr("int32", 4))),
            "axis 4; .* 4 axes, expected -4 to 3",
        ),
        (
            4,
            lambda o: (setattr(o, "type", "softmax"), o.attrs.update(axis=Attr("int32", -5))),
            "axis -5; its input has 4 axes",
        ),
        (4, lambda o: o.attrs.update(type=Attr("string", "SUM")), "expected MAX or AVG"),
        (5, lambda o: o.attrs.pop("shape"), "attribute 'shape' is missing"),
        (5, lambda o: o.attrs.update(data_type=Attr("string", "Float32")), "data_type 'Float32'"),
        (5, lambda o: o.args.append(("weights", ["w"])), "argument 'weights' is not declared; expected input"),
        (0, lambda o: o.attrs.update(shape=Attr("int32_vec", [1, 4, 4, 4])), "but its tensor has"),
        (
            5,
            lambda o: o.attrs.update(npuforge_open_shape=Attr("int32_vec", [-1])),
            "npuforge_open_shape .-1. of a tensor",
        ),
        (
            5,
            lambda o: o.attrs.update(npuforge_open_shape=Attr("string", "all")),
            "npuforge_open_shape 'all' of a tensor",
        ),
        (5, lambda o: o.tensor.attrs.update(npuforge_scalar=Attr("bool", True)), "npuforge_scalar on a tensor"),
        (5, lambda o: o.tensor.attrs.update(npuforge_bool=Attr("bool", True)), "npuforge_bool on a tensor of FLOAT32"),
    ],
)
def test_schema_faults_are_named(op: int, change: Callable[[XOp], object], message: str) -> None:
    model = small()
    change(model.ops[op])
    with pytest.raises(FormatError, match=message):
        check_schema(model)
    assert len(problems(model)) == 1


@needs_samples
def test_definition_without_a_default_is_refused() -> None:
    """libxir ends its process on such a file."""
    model = read_xmodel(SAMPLES / "tf2_custom_op.xmodel")
    definition = next(d for d in model.definitions if d.name == "conv2d-fix")
    definition.attrs[0].ClearField("default_value")
    (line,) = problems(model)
    assert (
        line
        == f"op_defs: 'conv2d-fix': attribute {definition.attrs[0].name!r} has no default value; expected one of its type"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c[1].children[0].attrs.update(device=Attr("string", "DPU")),
            "subgraph 'layer': attribute 'device' inside of 'npu'; .*compile the network again",
        ),
        (lambda c: c[1].attrs.pop("dpu_name"), "'npu': attribute 'dpu_name' is missing; expected string on .* DPU"),
        (lambda c: c[1].attrs.pop("runner"), "subgraph 'npu': attribute 'runner' is missing"),
        (lambda c: c[2].attrs.pop("runner"), "subgraph 'host': attribute 'runner' is missing"),
        (
            lambda c: c[1].attrs.update(reg_id_to_size=Attr("map_string_2_int64", {})),
            "is map_string_2_int64; expected .*32",
        ),
        (
            lambda c: c[0].attrs.update(workload=Attr("int64", 1)),
            "'inputs': attribute 'workload' is int64; expected uint64",
        ),
        (
            lambda c: c[1].attrs.update(npuforge_instructions=Attr("int32", 7)),
            "'npu': attribute 'npuforge_instructions' is int32; expected int32_vec",
        ),
    ],
)
def test_subgraph_faults_are_named(change: Callable[[list[XSubgraph]], object], message: str) -> None:
    model = small()
    assert model.root is not None
    change(model.root.children)
    with pytest.raises(FormatError, match=message):
        check_schema(model)
    assert len(problems(model)) == 1


@needs_samples
@pytest.mark.parametrize("name", ["pt_custom_op", "tf2_custom_op"])
def test_subgraph_table_is_what_the_vendors_compiler_writes(name: str) -> None:
    """Every attribute of its subgraphs below the root is in the table with its wire type; its leaves have no device."""
    root = read_xmodel(SAMPLES / f"{name}.xmodel").root
    assert root is not None
    below = [s for child in root.children for s in child.walk()]
    assert {(key, attr.kind) for s in below for key, attr in s.attrs.items()} <= set(SUBGRAPH_ATTRS.items())
    leaves = [leaf for child in root.children for leaf in child.children]
    assert leaves and not any("device" in leaf.attrs for leaf in leaves)


@pytest.mark.parametrize("data", [b"", b"<!DOCTYPE html><html></html>", b"\x00" * 64, b"\xdd\xcc\xbb\xaa" + bytes(200)])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"x\.xmodel: "):
        parse_xmodel(data, "x.xmodel")


def test_missing_file_is_a_format_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        read_xmodel(tmp_path / "absent.xmodel")


def test_attribute_without_value_is_refused() -> None:
    message = to_message(small())
    message.op_node[0].op_attr["empty"].SetInParent()
    with pytest.raises(FormatError, match="op 'in': attribute 'empty' has no value"):
        from_message(message)


def survives(data: bytes) -> bool:
    """Reads damaged bytes: a FormatError or a model that can be checked and written again; anything else fails the test."""
    try:
        model = parse_xmodel(data)
    except FormatError as error:
        assert "\n" not in str(error)
        return False
    assert isinstance(problems(model), list)
    assert from_message(to_message(model)) == model or "nan" in repr(model)
    return True


BYTES = serialised(small())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(BYTES) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_never_crash(changes: list[tuple[int, int]]) -> None:
    data = bytearray(BYTES)
    for at, value in changes:
        data[at] = value
    survives(bytes(data))


def test_truncation_and_splices_never_crash() -> None:
    """Also: most truncations are refused (a cut between two fields leaves a smaller legal message)."""
    refused = sum(not survives(BYTES[:n]) for n in range(len(BYTES)))
    assert refused > 0.95 * len(BYTES)
    rng = random.Random(0)
    for _ in range(200):
        a, b = sorted(rng.sample(range(len(BYTES)), 2))
        survives(BYTES[:a] + BYTES[b:])
        survives(BYTES[:a] + BYTES[a:b] * 2 + BYTES[b:])


@needs_samples
def test_damaged_real_file_never_crashes() -> None:
    message = message_class("Graph").FromString((SAMPLES / "tf2_custom_op.xmodel").read_bytes())
    del message.op_defs[:]
    for child in message.subg_root.subg_child:  # the code and the parameters: bytes without structure
        child.subg_attr.pop("mc_code", None)
        child.subg_attr.pop("reg_id_to_parameter_value", None)
    data = message.SerializeToString(deterministic=True)
    rng = random.Random(1)
    outcomes = []
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        outcomes.append(survives(bytes(damaged)))
    assert not all(outcomes)


def test_reading_leaves_no_shared_state() -> None:
    model = small()
    before = copy.deepcopy(model)
    parse_xmodel(serialised(model)).ops[0].attrs.clear()
    assert model == before
