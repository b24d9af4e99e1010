"""What device `dpu` must know of a build folder: its .xmodel, the network's inputs and outputs in ONNX's terms, the preprocessing record."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuforge.board_runtime import _native
from npuforge.board_runtime.session import TensorSpec
from npuforge.compile.dpu.belonging import COMMAND
from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.plain_text import DuplicateKeyError, parse_json
from npuforge.compile.xir.model import XOp

XMODEL, MANIFEST = "model.xmodel", "manifest.json"
FIX_SUFFIX = "_fix"  # of a fixed tensor in a file that was compiled from our fix form


@dataclass(frozen=True)
class CompiledFolder:
    """`target`: the vendor's DPU, empty for a build for our own NPU. `nhwc_outputs`: network outputs that the file gives as N, H, W, C.
    `float_inputs`: op of a DPU's file -> network input, which enters by it a second time, in float and ONNX's order of axes, for nodes on the CPU."""

    xmodel: Path
    name: str
    target: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    preprocess: dict[str, Any]
    nhwc_outputs: frozenset[str] = field(default_factory=frozenset)
    float_inputs: dict[str, str] = field(default_factory=dict)

    def graph_tensor(self, name: str) -> str:
        """A fixed tensor of the file by its name in the integer graph."""
        return name.removesuffix(FIX_SUFFIX) if self.target else name

    def is_nhwc_in_file(self, spec: TensorSpec, op: XOp) -> bool:
        """Whether `op` of the file gives a network input as N, H, W, C."""
        if self.target:
            return len(spec.shape) == 4 and op.name not in self.float_inputs
        return len(spec.shape) == 4 and (spec.nhwc or op.tensor.dtype in ("XINT8", "BFLOAT16"))


def read_folder(folder: Path) -> CompiledFolder:
    """From `manifest.json` (and, of a build for our own NPU, its `.bin`). FormatError where something is missing or not as written."""
    path = folder / MANIFEST
    try:
        manifest = parse_json(path.read_text(encoding="utf-8"), str(path))
        target = str(manifest.get("target", ""))
        name, preprocess = str(manifest["name"]), dict(manifest.get("preprocess") or {})
        nhwc = frozenset(manifest.get("nhwc_outputs", ()))
        float_inputs = {str(op): str(name) for op, name in manifest.get("float_inputs", {}).items()}
        if target:
            layout = set(manifest.get("nhwc_inputs", ()))
            inputs = [_spec(n, shape, n in layout) for n, shape in manifest["inputs"].items()]
            outputs = [_spec(n, shape, False) for n, shape in manifest["outputs"].items()]
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be read ({error.strerror}); expected a folder that npuforge compile wrote"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, DuplicateKeyError) as error:
        raise FormatError(
            f"{path}: not a manifest of npuforge compile ({type(error).__name__}: {error}); compile again"
        ) from None
    if not target:
        program = _native.Program.load(str(folder / "model.bin"), "")
        inputs, outputs = ([TensorSpec(**spec) for spec in side] for side in (program.inputs, program.outputs))
    file = folder / XMODEL
    if not file.is_file():
        command = COMMAND if target else "npuforge compile"
        raise FormatError(f"{file}: no such file; make it with: {command}")
    return CompiledFolder(file, name, target, inputs, outputs, preprocess, nhwc, float_inputs)


def _spec(name: str, shape: list[int], nhwc: bool) -> TensorSpec:
    return TensorSpec(name, tuple(int(d) for d in shape), "float32", nhwc, False, None)
