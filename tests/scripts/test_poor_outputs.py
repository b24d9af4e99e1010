"""A pow2 build whose integers are far from the float network's says so when it is compiled. The cosine is that of ONNX Runtime's output and the build's own expectation."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest
from command_line import CommandLine


@pytest.mark.parametrize("extreme", [1.0, 300.0])
@pytest.mark.parametrize("target", [("--target", "dpu:DPUCZDX8G"), ("--mode", "pow2")])
def test_outputs_far_from_the_float_networks(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, target: tuple[str, str], extreme: float
) -> None:
    """The last calibration sample sets the scale; the first one, which is the build's own, has then few steps left."""
    random, folder = np.random.default_rng(2), command.folder / "samples"
    folder.mkdir()
    for number in range(4):
        factor = extreme if number == 3 else 1.0
        np.savez(folder / f"{number}.npz", x=factor * random.normal(size=(1, 3, 16, 16)).astype(np.float32))
    monkeypatch.setenv("PATH", str(command.folder))
    result = command("compile", "net.onnx", "--calib", "samples", "-o", "made", *target)
    assert result.code == 0, result
    session = onnxruntime.InferenceSession(command.folder / "net.onnx")
    real = session.run(["y"], {"x": np.load(folder / "0.npz")["x"]})[0].astype(np.float64).ravel()
    integers = np.load(command.folder / "made" / "expected.npz")["y"].astype(np.float64).ravel()
    cosine = real @ integers / np.linalg.norm(real) / np.linalg.norm(integers)
    said = re.search(r"far from the float network's: cosine y (\S+) on the sample \(0.npz\)", result.err)
    assert (cosine < 0.9) == (extreme > 1) == (said is not None), (cosine, result.err)
    if said is not None:
        assert float(said[1]) == pytest.approx(cosine, abs=0.006)
