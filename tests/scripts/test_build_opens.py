"""A build that the runtime cannot open is refused by `compile`, and not left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import make_model, node, tiny_model

from npuforge.compile.context import Options
from npuforge.compile.host_program import float_graph, host_program
from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.pipeline import compile_model
from npuforge.hw_kernels.arch import load
from npuforge.scripts.model_options import check_build


def test_operator_in_a_form_that_the_runtime_lacks(tmp_path: Path) -> None:
    """A mode that the C++ does not know, set behind the import's own checks."""
    model = make_model([node("Resize", ["x", "", "s"], ["y"], "up")], {"s": np.array([1, 1, 2, 2], np.float32)})
    graph = float_graph(model)
    file = tmp_path / "model.bin"
    file.write_bytes(host_program(graph))
    check_build(file)
    graph.node("up").attrs["coordinate_transformation_mode"] = "unheard_of"
    file.write_bytes(host_program(graph))
    with pytest.raises(UnsupportedError, match=r"could not open.*'up'.*coordinate_transformation_mode.*export"):
        check_build(file)


def test_refused_build_is_not_left(tmp_path: Path) -> None:
    seen: list[str] = []

    def refuse(file: Path) -> None:
        seen.append(file.name)
        assert file.stat().st_size > 0
        raise UnsupportedError("the runtime could not open this build")

    onnx.save(tiny_model(), tmp_path / "net.onnx")
    arch = load("nf-b1024-bf16")
    options = Options(tmp_path / "net.onnx", arch, tmp_path / "build", precision="bf16", check_build=refuse)
    with pytest.raises(UnsupportedError, match="could not open"):
        compile_model(options)
    assert seen == ["model.bin"] and not (tmp_path / "build").exists()
