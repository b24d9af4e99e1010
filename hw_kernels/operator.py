"""One operator = one class = one folder `hw_kernels/ops/<op>/op.py`; the registry finds the folders and the entry points `npuforge.ops`.

An operator owns its names, shape rule, float64 meaning, integer semantics (normative bits), placement constraints, test cases and, added by the
code generator, its NPU-DSL `program` and cycle `cost`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.ir.quantization import QGraph, TensorQuant

if TYPE_CHECKING:
    from npuforge.hw_kernels.dsl.program import Work

Shape = tuple[int, ...]
Gradients = list[np.ndarray | None]  # one per input: None where it has none (indices, sizes)
SecondGradients = tuple[Gradients, list[np.ndarray]]  # of the inputs, of the output gradients
Constraint = Callable[[Node, Graph], bool]  # the docstring is the message a user sees and the SUPPORTED_OPS line
ENTRY_POINT_GROUP = "npuforge.ops"


@dataclass
class Case:
    """One test case: shapes of the activation inputs (N, C, H, W), shapes of constant inputs, attributes, fused activation, why it is here.

    Inputs are normal noise unless `values` draws them all (activations, then constants) from a random generator.
    """

    x: list[Shape]
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: list[Shape] = field(default_factory=list)
    activation: Activation = field(default_factory=Activation)
    why: str = ""
    values: Callable[[np.random.Generator], list[Any]] | None = None
    outputs: int = 1


UNWRITTEN = 77  # what output arrays hold before a call whose kernel may leave some of them as they are
KernelCase = tuple[
    list[Any], list[np.ndarray]
]  # arguments in order (arrays are written to), what output arrays must hold afterwards


@dataclass(frozen=True)
class HlsKernel:
    """`kernel.hpp` in the operator's folder: a function of npuforge::hls over fixed arrays, for operators that are no instruction of the engines.

    arguments: C types in order; an array is a pointer, an output array one that is not const. `cases` draws arguments and gives the normative
    outputs from the folder's own numpy integers.
    """

    top: str
    arguments: tuple[str, ...]
    cases: Callable[[np.random.Generator], KernelCase]


@dataclass
class KernelRun:
    """An operator's kernel on one case: calls of the C++ function with what they must write, and what that means in real numbers."""

    calls: list[KernelCase]
    inputs: list[
        Any
    ]  # real values of what the kernel was given, float64, for `reference`: ONNX layout, constants included
    results: list[np.ndarray]  # real values of what the calls give, ONNX layout
    bounds: list[Any]  # stated largest |result - reference(inputs)| of every value, real units


@dataclass(frozen=True)
class KernelForm:
    """A function of `kernel.hpp` on the NPU's own data (NHWC-16, pad lanes 0), for operators that no engine runs.

    `run(node, inputs, mode)` has the normative integers: `inputs` are all the case's (floats), `mode` is "fine" or "pow2" (int8), "bf16". `refused`:
    arguments by position -> values just beyond their bounds, with which the function gives false and writes nothing.
    """

    top: str
    arguments: tuple[str, ...]
    run: Callable[[Node, list[Any], str], KernelRun]
    refused: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class Op:
    """Base of all operators. `names`: node types in the kit's vocabulary; `onnx`: ONNX types (`domain::Type`) it is imported from."""

    names: ClassVar[tuple[str, ...]] = ()
    onnx: ClassVar[tuple[str, ...]] = ()
    # Of `onnx`, types that are no operator here: what else to give this one where there is no import that does it.
    called_with: ClassVar[tuple[tuple[str, str], ...]] = ()
    moves_bytes: ClassVar[bool] = (
        False  # carries scales: output channels keep the scale of the input channel they come from
    )
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    cases: ClassVar[tuple[Case, ...]] = ()
    # Stated bound of the integer semantics: output steps between them and the float meaning of the same (dequantised) inputs and weights; a curve
    # adds its table's (two units of 2^-F and 0.001).
    error_steps: ClassVar[float] = 1.0
    # The output's shape depends on values, not only on shapes.
    shape_from_values: ClassVar[bool] = False
    # Element types of the first input that its C++ takes on the CPU partition; empty: all that the runtime knows, where ONNX allows them.
    host_types: ClassVar[tuple[str, ...]] = ()
    # Operators that `lower` turns this one into (always, for constant parameters); the CPU and the NPU then run those.
    lowers_to: ClassVar[tuple[str, ...]] = ()
    # Outputs (by position) that name something, such as a class, in whatever type: the distance of two values says nothing.
    index_outputs: ClassVar[tuple[int, ...]] = ()
    # Attributes that it reads, where no schema of ONNX lists them; None: nobody said, and none is refused.
    attributes: ClassVar[tuple[str, ...] | None] = None
    # Inputs (by position) that may be left out, and what they then equal (`absent_input`).
    optional_inputs: ClassVar[tuple[int, ...]] = ()
    # Why the operator has no gradient, where `gradient` is not given.
    no_gradient: ClassVar[str] = ""
    # What the import makes of it for the NPU, and where, though the NPU has no such operator (tests/compile/test_placed_as_others.py).
    placed_as: ClassVar[str] = ""
    # HLS C++ of an operator that no engine runs.
    kernel: ClassVar[HlsKernel | None] = None
    # The same on the NPU's int8 and bf16. No partition runs them: the operator's place is the CPU partition, in float.
    kernel_int8: ClassVar[KernelForm | None] = None
    kernel_bf16: ClassVar[KernelForm | None] = None
    # Set by the code generator in the operator's own class: the NPU-DSL program and the cycle cost.
    program: ClassVar[Callable[..., Any] | None] = None
    # The NPU-DSL text of an operator that the NPU runs as another one's activation (`dsl.kernel.kernel`) or not at all (`dsl.array.array_kernel`): sources
    # for other targets come from it.
    dsl: ClassVar[Any] = None
    cost: ClassVar[Callable[..., Any] | None] = None

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        """Output shapes (ONNX order) from the shapes of all inputs, constants included; −1 is a dimension that only the data decide."""
        raise NotImplementedError

    def absent_input(self, position: int, shapes: Sequence[Shape | None]) -> np.ndarray | None:
        """What leaving out the input at `position`, one of `optional_inputs`, equals, from the shapes of those given; None where a shape is unknown."""
        return None

    def completed(self, inputs: list[Any]) -> list[Any]:
        """The inputs (arrays, ONNX order), with those at the end that were left out and equal something."""
        shapes = [np.shape(x) for x in inputs]
        while len(inputs) in self.optional_inputs:
            inputs = [*inputs, self.absent_input(len(inputs), shapes)]
        return inputs

    def largest(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        """Output shapes with the most elements there can be where `infer` says −1; an .xmodel declares these."""
        return self.infer(node, shapes)

    def output_types(self, node: Node, types: list[str]) -> list[str]:
        """numpy dtype names of the outputs from those of the inputs; the first input's where the operator says nothing else."""
        return [types[0] if types else "float32"] * len(node.outputs)

    def host_types_of(self, node: Node, position: int) -> tuple[str, ...]:
        """`host_types` of the input at `position`, for the attributes of `node`."""
        return self.host_types if position == 0 else ()

    def lower(self, node: Node, graph: Graph) -> list[Node] | None:
        """The same computation in other operators, done at import so that the NPU can run it; None: the node stays as it is.

        The last node keeps the name and writes the outputs; constants may be added to `graph`.
        """
        return None

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """The meaning: float64, ONNX layout, all inputs (constants included), fused activation applied."""
        raise NotImplementedError

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Gradients of all inputs (float64, inputs' shapes) from those of all outputs; the fused activation is part of the operator."""
        raise NotImplementedError

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """The gradient of `gradient`: from `directions`, the gradients of its results, those of the inputs and of the output gradients."""
        raise NotImplementedError

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        """The normative bits: int8 activations [N, H, W, C] of logical channels in, the same out; parameters from `qgraph`."""
        raise NotImplementedError

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        """The normative bf16 bits: operands in lanes (uint16 [H, W, 16*blocks]; a tight image [H, W, C]) to the output in lanes."""
        raise NotImplementedError

    def quantise(
        self, node: Node, inputs: list[TensorQuant], wanted: TensorQuant, qgraph: QGraph
    ) -> tuple[Any, TensorQuant]:
        """For an operator the quantiser does not know: what `integer` finds in `qgraph.params`, and the output's scales (`wanted`, or others)."""
        raise NotImplementedError

    def source_channels(self, node: Node, channels: list[int]) -> list[tuple[int, int]]:
        """For operators that move bytes: (input, channel) each output channel comes from; (0, -1) is a real 0."""
        raise NotImplementedError

    def refusal(self, level: str) -> str:
        """Why its program cannot run its cases in `int8` or `bf16`, empty where it can."""
        return ""

    def failed_constraint(self, node: Node, graph: Graph) -> str | None:
        """The message of the first placement constraint that the node does not meet, None if it can run on the NPU."""
        for constraint in self.constraints:
            if not constraint(node, graph):
                return " ".join((constraint.__doc__ or constraint.__name__).split())
        return None


_REGISTERED: dict[str, Op] = {}
OpClass = TypeVar("OpClass", bound=type[Op])


def register(op_class: OpClass) -> OpClass:
    """Class decorator: make the operator known under all its names. A second class under the same name is an error."""
    for name in op_class.names:
        known = _REGISTERED.get(name)
        if known is not None and _place(type(known)) != _place(op_class):
            raise UnsupportedError(
                f"operator {name}: registered by {type(known).__module__} and again by {op_class.__module__}; remove one of them"
            )
    for name in op_class.names:
        _REGISTERED[name] = op_class()
    return op_class


def _place(op_class: type[Op]) -> tuple[str, str]:
    """What is the same of a class whose module is loaded again."""
    return op_class.__module__, op_class.__qualname__


@cache
def refused_packages() -> tuple[str, ...]:
    """Finds the operators, once: every folder of `hw_kernels/ops`, then the entry points of installed packages. Gives one line for every entry
    point that cannot be loaded: a network without its operators needs none of it, so that this is a notice."""
    for path in sorted((Path(__file__).parent / "ops").glob("*/op.py")):
        importlib.import_module(f"npuforge.hw_kernels.ops.{path.parent.name}.op")
    refused = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = entry.load()  # a module that registers on import, or an operator class
            found = loaded if isinstance(loaded, type) and issubclass(loaded, Op) else None
            if found is not None and any(type(_REGISTERED.get(name)) is not found for name in found.names):
                register(found)
        except Exception as error:  # somebody else's code: whatever it raises
            package = entry.dist.name if entry.dist is not None else "of no name"
            refused.append(
                f"package {package}: its entry point {entry.name} = {entry.value} ({ENTRY_POINT_GROUP}) cannot be loaded: "
                f"{type(error).__name__}: {' '.join(str(error).split())}; its operators are left out; repair or uninstall the package"
            )
    return tuple(refused)


def registry() -> dict[str, Op]:
    """All operators by name."""
    refused_packages()
    return _REGISTERED


def find(name: str) -> Op | None:
    """The operator called `name`, None if nobody registered it."""
    return registry().get(name)


def not_known(name: str) -> str:
    """What is said of a name that nobody registered, behind the name: what to call where the import makes another operator of it."""
    for own, op in registry().items():
        for other, attributes in op.called_with:
            if other == name:
                return f"is what ONNX files have, the import makes {own} of it; call {own} with {attributes}"
    return f"is not known; register it under the entry point group {ENTRY_POINT_GROUP}"


def get(node: Node) -> Op:
    """The operator of `node`; UnsupportedError naming the node if nobody registered it."""
    op = find(node.op)
    if op is None:
        raise UnsupportedError(
            "; ".join(
                (
                    f"node {node.name}: operator {node.op} {not_known(node.op)}",
                    *refused_packages(),
                )
            )
        )
    return op


def unknown_attribute(name: str, key: str, known: tuple[str, ...]) -> str:
    """What is said of an attribute that operator `name` does not have, with the nearest that it has."""
    near = get_close_matches(key, known, 1, 0.5)
    remedy = f"use {near[0]}" if near else "leave it out"
    return f"operator {name} has no attribute {key}; {remedy} (it has {', '.join(known) or 'none'})"


def case_inputs(case: Case, seed: int = 0) -> list[Any]:
    """All inputs of a test case (activations, then constants): float32, or what `case.values` draws."""
    random = np.random.default_rng(seed)
    if case.values is not None:
        drawn = [np.asarray(v) for v in case.values(random)]
        return [v.astype(np.float32) if v.dtype.kind == "f" else v for v in drawn]
    constants = [random.normal(0.0, 0.5, shape).astype(np.float32) for shape in case.constants]
    return [random.normal(0.0, 1.0, shape).astype(np.float32) for shape in case.x] + constants


def case_graph(name: str, case: Case, seed: int = 0) -> Graph:
    """A one-node graph for a test case: inputs x0, x1, ..., constants c0, c1, ..., outputs y, y1, ..."""
    from npuforge.compile.ir.graph import TensorInfo

    values = case_inputs(case, seed)
    inputs = [f"x{i}" for i in range(len(case.x))]
    constants = {f"c{i}": value for i, value in enumerate(values[len(inputs) :])}
    outputs = ["y", *(f"y{i}" for i in range(1, case.outputs))]
    node = Node("node", name, inputs + list(constants), outputs, dict(case.attrs), case.activation, ["node"])
    tensors = {n: TensorInfo(n, tuple(s), v.dtype.name) for n, s, v in zip(inputs, case.x, values, strict=False)}
    tensors |= {n: TensorInfo(n, c.shape, c.dtype.name) for n, c in constants.items()}
    op = get(node)
    if not op.shape_from_values:
        shapes = op.infer(node, [tensors[n].shape for n in node.inputs])
    if op.shape_from_values or any(-1 in shape for shape in shapes):
        shapes = [np.shape(y) for y in op.reference(node, values)]
    types = op.output_types(node, [tensors[n].dtype for n in node.inputs])
    for output, shape, dtype in zip(outputs, shapes, types, strict=True):
        tensors[output] = TensorInfo(output, shape, dtype)
    return Graph("case", [node], tensors, constants, inputs, outputs, 13)
