"""All that an application can ask the vendor's Python modules about a file: our modules say the same. Right values: what our reader finds in the file,
and the vendor's own modules where they are installed (test_vart_application.py says how)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from vart_build import Build, make_build, vendor_folder

from npuforge.board_runtime import vart, xir
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.xir.listing import border
from npuforge.compile.xir.reader import read_xmodel

SCRIPT = Path(__file__).with_name("vart_facts.py")


@pytest.fixture(scope="module", params=["pow2", "fine"])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    return make_build(tmp_path_factory.mktemp(request.param), request.param)


def asked(build: Build, *command: str, libraries: str = "") -> dict[str, Any]:
    """The script's object, on the modules that `command` gives it."""
    results = build.folder / "facts.json"
    environment = dict(os.environ)
    if libraries:
        environment["LD_LIBRARY_PATH"] = f"{os.environ.get('LD_LIBRARY_PATH', '')}:{libraries}"
    words = [sys.executable, *command, SCRIPT, build.model, results]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(results.read_text())
    return facts


@pytest.fixture(scope="module")
def facts(build: Build) -> dict[str, Any]:
    return asked(build, "-m", "npuforge.board_runtime.vart")


def test_ops_and_tensors_are_those_of_the_file(build: Build, facts: dict[str, Any]) -> None:
    model = read_xmodel(build.model)
    assert list(facts["ops"]) == sorted(op.name for op in model.ops) == facts["all"]
    for op in model.ops:
        said = facts["ops"][op.name]
        assert (said["type"], said["arguments"]) == (op.type, dict(op.args))
        assert said["readers"] == sorted(other.name for other in model.ops if op.name in other.inputs())
        assert set(op.attrs) <= set(said["attributes"])
        tensor = said["output"]
        assert (tensor["name"], tensor["dims"], tensor["dtype"]) == (
            op.tensor.name,
            op.tensor.shape,
            op.tensor.dtype.lower(),
        )
        assert (
            tensor["bytes"] == math.prod(op.tensor.shape) * op.tensor.bit_width // 8 and tensor["producer"] == op.name
        )


def test_subgraphs_are_those_of_the_file(build: Build, facts: dict[str, Any]) -> None:
    model = read_xmodel(build.model)
    assert model.root is not None
    assert facts["in order"] == [child.name for child in model.root.children]
    said = {child["name"]: child for child in facts["subgraphs"]["below"]}
    for child in model.root.children:
        assert said[child.name]["ops"] == sorted(name for leaf in child.leaves() for name in leaf.ops)
        assert said[child.name]["children"] == sorted(leaf.name for leaf in child.children)
        below = {leaf["name"]: leaf for leaf in said[child.name]["below"]}
        for leaf in child.children:
            assert (below[leaf.name]["inputs"], below[leaf.name]["outputs"]) == border(model, leaf)
            assert (below[leaf.name]["depth"], below[leaf.name]["leaf"]) == (2, True)


def test_buffers_of_any_shape_and_kind(facts: dict[str, Any]) -> None:
    assert len(facts["runners"]) == 2
    for runner in facts["runners"].values():
        assert runner["sums"] == runner["flat"] == runner["plain"] and any(runner["sums"])
        sizes = [(tensor[0], tensor[3]) for tensor in (*runner["inputs"], *runner["outputs"])]
        assert runner["buffers"] == [list(size) for size in sizes]


def test_the_vendors_modules_say_the_same(build: Build, facts: dict[str, Any]) -> None:
    assert asked(build, libraries=str(vendor_folder())) == facts


def test_what_is_asked_wrongly(build: Build) -> None:
    graph = xir.Graph.deserialize(build.model)
    child = next(c for c in graph.get_root_subgraph().get_children() if c.get_children())
    layer = child.get_children()[0]
    with pytest.raises(UsageError, match=f"a layer of {child.name}; a runner runs {child.name} as a whole"):
        vart.Runner.create_runner(layer)
    op = layer.get_ops()[0]
    with pytest.raises(UsageError, match=rf"op {op.get_name()}: no input 5 of argument 'input'; it has 1"):
        op.get_input_op("input", 5)
    with pytest.raises(UsageError, match="no attribute 'absent'; found: "):
        op.get_attr("absent")
    runner = vart.Runner.create_runner(child)
    with pytest.raises(UsageError, match=r"expected arrays or other buffers .*; give numpy arrays"):
        runner.execute_async([[1, 2, 3]], [])
    outputs = [np.zeros(t.dims, np.int8) for t in runner.get_output_tensors()]
    job = runner.execute_async([np.zeros(5, np.int8)], outputs)
    assert runner.wait(job) == 1 and "input 'x'" in runner.message(job)
    with pytest.raises(UsageError, match=r"a \.bin has no ops; open the \.xmodel beside it"):
        xir.Graph.deserialize(build.folder / "model.bin").get_ops()


def test_objects_are_keys_and_attributes_are_copies(build: Build) -> None:
    graph = xir.Graph.deserialize(build.model)
    (users,) = [c for c in graph.get_root_subgraph().get_children() if c.get_attr("device") == "USER"]
    (tensor,) = users.get_output_tensors()
    assert users.get_input_tensors() == [] and {tensor: 1}[graph.get_tensor("x")] == 1
    tensor.set_attrs({"mine": 3})
    assert tensor.get_attrs() == {"mine": 3} and str(tensor).endswith("attrs: {'mine': 3}}")
    assert "mine" not in next(t for t in xir.Graph.deserialize(build.model).get_tensors() if t.name == "x").attrs
