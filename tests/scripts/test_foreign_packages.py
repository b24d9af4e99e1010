"""Packages with an entry point `npuforge.ops`, as pip would install them, through the command line: whole ones and one that cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

OPS = Path(__file__).resolve().parents[2] / "hw_kernels" / "ops"
OPERATOR = '''
from npuforge.hw_kernels.dsl.kernel import kernel, vmul, vmuls
from npuforge.hw_kernels.dsl.kernel_program import KernelOp
from npuforge.hw_kernels.operator import Case, register

@kernel
def program(x):
    return vmuls(vmul(vmul(x, x), x), 0.25)

@register
class {name}(KernelOp):
    """y = x**3 / 4"""

    names = onnx = ("org.somewhere::{name}",)
    pixel_kernel = program
    cases = (Case([(1, 3, 4, 5)]),)
'''


def install(folder: Path, package: str, entry: str, files: dict[str, str]) -> None:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[npuforge.ops]\n{entry}\n", encoding="utf-8")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def npuforge(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = {[str(site), *sys.path]!r}; from npuforge.scripts.cli import main; sys.exit(main({list(arguments)!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def network(path: Path, op: str, domain: str) -> str:
    random = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node(op, ["a"], ["b"], "own", domain=domain),
        helper.make_node("Conv", ["b", "w"], ["y"], "last", pads=[1, 1, 1, 1]),
    ]
    ends = [helper.make_tensor_value_info(t, TensorProto.FLOAT, [1, 3, 8, 8]) for t in "xy"]
    weights = numpy_helper.from_array(random.normal(0, 0.3, (3, 3, 3, 3)).astype(np.float32), "w")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.somewhere", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "net", ends[:1], ends[1:], [weights]), opset_imports=opsets, ir_version=9
    )
    onnx.save(model, path)
    return str(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes: in a package's `__init__`, and in a folder called as one of ours."""
    site = tmp_path_factory.mktemp("whole")
    install(site, "first", "cube = first_ops:Cube", {"first_ops/__init__.py": OPERATOR.format(name="Cube")})
    files = {"second_ops/__init__.py": "", "second_ops/relu/__init__.py": ""}
    install(
        site, "second", "a = second_ops.relu.op:Bent", files | {"second_ops/relu/op.py": OPERATOR.format(name="Bent")}
    )
    return site


def test_ops_lists_classes_of_other_packages(whole: Path) -> None:
    rows = {row["name"]: row for row in json.loads(npuforge(whole, "ops", "--json").stdout)}
    for name in ("org.somewhere::Cube", "org.somewhere::Bent"):
        assert rows[name]["npu"] and not rows[name]["cpu"]
    assert rows["Relu"]["cpu"]
    text, page = npuforge(whole, "ops"), npuforge(whole, "ops", "--markdown")
    assert [text.returncode, page.returncode] == [0, 0], text.stderr + page.stderr
    assert "| [org.somewhere::Cube](" in page.stdout and "y = x**3 / 4" in text.stdout


def test_inspect_takes_the_precision(whole: Path, tmp_path: Path) -> None:
    """The program multiplies what no int8 tile holds: it is one for bf16."""
    net = network(tmp_path / "net.onnx", "Cube", "org.somewhere")
    refused = npuforge(whole, "inspect", net)
    assert refused.returncode == 1 and "vmul: expected an int8 tile as first operand, found int32" in refused.stderr
    assert "as it stands the program is for bf16: use --precision bf16 with an arch that has it" in refused.stderr
    placed = npuforge(whole, "inspect", net, "--precision", "bf16", "--arch", "nf-b4096-bf16")
    assert placed.returncode == 0 and "partitions: NPU (3 nodes)" in placed.stdout, placed.stderr
    wrong = npuforge(whole, "inspect", net, "--precision", "bf16", "--arch", "nf-b4096")
    assert wrong.returncode == 2 and "has no feature bf16" in wrong.stderr


def test_a_package_that_cannot_be_imported_is_a_notice(tmp_path: Path) -> None:
    install(tmp_path, "broken", "x = broken_ops:Thing", {"broken_ops.py": "import module_that_is_not_there\n"})
    words = (
        "package broken: its entry point x = broken_ops:Thing (npuforge.ops) cannot be loaded: ModuleNotFoundError: "
    )
    other = npuforge(tmp_path, "inspect", network(tmp_path / "relu.onnx", "Relu", ""))
    listed = npuforge(tmp_path, "ops")
    build, image, record = str(tmp_path / "build"), tmp_path / "x.png", tmp_path / "record.yaml"
    cv2.imwrite(str(image), np.random.default_rng(3).integers(0, 256, (8, 8, 3)).astype(np.uint8))
    record.write_text("mean: [0, 0, 0]\nstd: [1, 1, 1]\n", encoding="utf-8")
    relu, arch = str(tmp_path / "relu.onnx"), ("--precision", "bf16", "--arch", "nf-b4096-bf16")
    made = npuforge(tmp_path, "compile", relu, "--preprocess", str(record), *arch, "-o", build)
    compared = npuforge(tmp_path, "compare", build, str(image))
    for done in (other, listed, made, compared):
        assert done.returncode == 0, done.stderr
        (line,) = (x for x in done.stderr.splitlines() if "package broken" in x)
        assert line.startswith(f"notice: {words}")
    needed = npuforge(tmp_path, "inspect", network(tmp_path / "thing.onnx", "Thing", "org.somewhere"))
    (line,) = needed.stderr.splitlines()[-1:]
    assert needed.returncode == 1 and line.startswith(
        "error: node 'own': no operator 'org.somewhere::Thing' is known"
    ), needed.stderr
    assert words in line


@pytest.mark.parametrize("decorator", ["@register", ""])
def test_a_package_does_not_replace_an_operator_of_ours(tmp_path: Path, decorator: str) -> None:
    """A class called as ours, under our name."""
    text = OPERATOR.format(name="Relu").replace("org.somewhere::Relu", "Relu").replace("@register", decorator)
    module = next(p.parent.name for p in OPS.glob("*/op.py") if "class Relu(" in p.read_text(encoding="utf-8"))
    install(tmp_path, "impostor", "r = impostor_ops:Relu", {"impostor_ops.py": text})
    done = npuforge(tmp_path, "ops", "--json")
    assert done.returncode == 0, done.stderr
    assert f"registered by npuforge.hw_kernels.ops.{module}.op and again by impostor_ops; remove one" in done.stderr
    (relu,) = (row for row in json.loads(done.stdout) if row["name"] == "Relu")
    assert relu["cpu"] and relu["meaning"] != "y = x**3 / 4"


def test_the_contract_test_judges_operators_of_other_packages(tmp_path: Path) -> None:
    """Every level that they have; those that they cannot have are no failures, a bound that does not hold is one and says what to do."""
    larger = OPERATOR.replace("Case([(1, 3, 4, 5)])", "Case([(1, 20, 5, 7)])")
    steps = larger.replace(
        "return vmuls(vmul(vmul(x, x), x), 0.25)", "return vmul(cast(vmul(x, x), x.dtype), x)"
    ).replace("import kernel", "import cast, kernel")
    stated = steps.replace("    names =", "    error_steps = {steps}\n    names =")
    texts = {
        "Cube": stated.format(name="Cube", steps=3.0),
        "Tight": stated.format(name="Tight", steps=0.01),
        "Narrow": larger.format(name="Narrow"),  # bf16 only: what a product of two int8 tiles makes is no int8 tile
    }  # fmt: skip
    entries = "\n".join(f"{name.lower()} = cubes.{name.lower()}:{name}" for name in texts)
    install(
        tmp_path,
        "cubes",
        entries,
        {"cubes/__init__.py": ""} | {f"cubes/{name.lower()}.py": text for name, text in texts.items()},
    )
    root = Path(__file__).parents[2]
    files = sorted(map(str, (root / "tests" / "hw_kernels").glob("test_operator_contract*.py")))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "somewhere", *files]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=root)
    failed = [line.split("::", 1)[1] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    bound = "test_integer_error_is_within_the_stated_bound[org.somewhere.Tight-0-"
    assert [f.split(" - ")[0] for f in failed] == [f"{bound}fine]", f"{bound}pow2]"], done.stdout
    assert "state in error_steps what their steps cost" in done.stdout
    passed = [line for line in done.stdout.splitlines() if " passed" in line]
    assert passed and int(passed[0].split(" passed")[0].split()[-1]) > 20, done.stdout
