"""The VART interface: asynchronous jobs, subgraphs, statuses and messages, and that the vendor's calling pattern works unchanged."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from tiny_model import CHANNELS, SCALE, ZERO, H, TinyModel, W

from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import FormatError, NpuforgeError, UsageError


def feed(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, (1, H, W, CHANNELS)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.bin").write_bytes(TinyModel(second=True).build())
    return tmp_path


def expected(x: np.ndarray) -> dict[str, np.ndarray]:
    return TinyModel(second=True).expected(x.transpose(0, 3, 1, 2))


def test_whole_network(folder: Path) -> None:
    runner = vart.Runner.create_runner(folder, "run")
    (tensor,) = runner.get_input_tensors()
    assert (tensor.name, tensor.dims, tensor.dtype, tensor.ndim) == ("x", [1, H, W, CHANNELS], "float32", 4)
    names = [t.name for t in runner.get_output_tensors()]
    assert names == ["o", "z"]
    assert [t.dims for t in runner.get_output_tensors()] == [[1, CHANNELS, H * W + 2], [1, H, W, CHANNELS]]
    o, z = runner.run([feed()])
    np.testing.assert_allclose(o, expected(feed())["o"], rtol=1e-6)
    np.testing.assert_allclose(z, expected(feed())["z"].transpose(0, 2, 3, 1), rtol=1e-6)


@pytest.mark.parametrize("mode", ["run", "sim", "csim"])
def test_vendor_pattern_over_subgraphs(folder: Path, mode: str) -> None:
    """Graph -> child subgraphs -> one runner each -> int8 buffers from runner to runner, matched by name."""
    graph = xir.Graph.deserialize(str(folder / "model.bin"))
    children = graph.get_root_subgraph().toposort_child_subgraph()
    devices = [c.get_attr("device") for c in children if c.has_attr("device")]
    assert devices == ["USER", "DPU", "CPU", "DPU", "CPU"]
    values: dict[str, np.ndarray] = {"x": TinyModel().quantised(feed().transpose(0, 3, 1, 2))}
    for child in children[1:]:
        runner = vart.Runner.create_runner(child, mode)
        assert runner.get_input_tensors() == child.get_input_tensors()
        inputs = [values[t.name] for t in runner.get_input_tensors()]
        outputs = [np.empty(t.dims, t.dtype.removeprefix("x")) for t in runner.get_output_tensors()]
        job = runner.execute_async(inputs, outputs)
        assert job[1] == 0 and runner.wait(job) == 0
        values |= {t.name: array for t, array in zip(runner.get_output_tensors(), outputs, strict=True)}
        if child.get_attr("device") == "DPU":
            assert all(a.dtype == np.int8 for a in outputs)
    np.testing.assert_allclose(values["o"], expected(feed())["o"], rtol=1e-6)


def test_buffers_of_a_runner(folder: Path) -> None:
    """RunnerExt: filled, run and read as an application for the vendor's module does it."""
    for child in xir.Graph.deserialize(folder).get_root_subgraph().get_children():
        if not child.has_attr("device") or child.get_attr("device") == "USER":
            continue
        runner, plain = vart.RunnerExt.create_runner(child, "run"), vart.Runner.create_runner(child, "run")
        assert isinstance(runner, vart.RunnerExt) and not isinstance(plain, vart.RunnerExt)
        inputs, outputs = runner.get_inputs(), runner.get_outputs()
        assert [b.get_tensor() for b in inputs] == runner.get_input_tensors()
        assert [b.get_tensor() for b in outputs] == runner.get_output_tensors()
        random, given = np.random.default_rng(9), []
        for buffer, tensor in zip(inputs, runner.get_input_tensors(), strict=True):
            array = np.array(buffer, copy=False)
            assert type(array) is np.ndarray and array.shape == tuple(tensor.dims)
            assert array.dtype == np.dtype(tensor.dtype.removeprefix("x")) and memoryview(buffer).c_contiguous
            array[...] = random.integers(-100, 100, array.shape)
            given.append(array.copy())
        job = runner.execute_async(inputs, outputs)
        assert runner.wait(job) == 0
        for buffer, value in zip(outputs, plain.run(given), strict=True):
            assert np.array(buffer, copy=False).tobytes() == value.tobytes() and value.any()


def test_every_call_gives_buffers_of_its_own(folder: Path) -> None:
    runner = vart.RunnerExt.create_runner(folder)
    first, second = runner.get_inputs()[0], runner.get_inputs()[0]
    first[...] = 1
    assert not second.any() and not np.shares_memory(first, second)
    assert first.get_tensor().name == "x"
    with pytest.raises(UsageError, match="no whole TensorBuffer"):
        first[0].get_tensor()


def test_npu_subgraph_takes_and_gives_real_values(folder: Path) -> None:
    """float32 buffers at an int8 border are converted with the tensor's scales."""
    npu = xir.Graph.deserialize(folder).get_root_subgraph().get_children()[1]
    runner = vart.Runner.create_runner(npu)
    y = np.empty((1, H, W, CHANNELS), np.float32)
    job = runner.execute_async([feed()], [y])
    assert runner.wait(job) == 0
    np.testing.assert_array_equal(y, TinyModel().expected(feed().transpose(0, 3, 1, 2))["y"].transpose(0, 2, 3, 1))
    tensor = runner.get_input_tensors()[0]
    assert tensor.dtype == "xint8" and not tensor.has_attr("fix_point") and len(tensor.get_attr("scale")) == CHANNELS
    with pytest.raises(UsageError, match="tensor x: no attribute 'fix_point'; found: scale, zero_point"):
        tensor.get_attr("fix_point")


def test_cpu_subgraph_gives_what_the_next_npu_subgraph_reads(folder: Path) -> None:
    """An int8 buffer at such an output: the same quantisation as at the network's own border. Other outputs refuse it."""
    children = xir.Graph.deserialize(folder).get_root_subgraph().get_children()
    middle, last = children[2], children[4]
    q = np.random.default_rng(4).integers(-128, 128, (1, H, W, CHANNELS)).astype(np.int8)
    runner = vart.Runner.create_runner(middle)
    n = np.empty((1, H, W, CHANNELS), np.int8)
    assert runner.wait(runner.execute_async([q], [n])) == 0
    real = ((q.astype(np.float64) - ZERO) * SCALE).astype(np.float32)
    np.testing.assert_array_equal(n, TinyModel().quantised(-real.transpose(0, 3, 1, 2)))
    head = vart.Runner.create_runner(last)
    shapes = {t.name: t.dims for t in head.get_output_tensors()}
    job = head.execute_async([q], [np.empty(shapes["o"], np.int8)])
    assert job[1] == 1 and head.message(job) == "output 'o': type expected float32, found int8"
    whole = vart.Runner.create_runner(folder)
    job = whole.execute_async([feed()], [np.empty(t.dims, np.int8) for t in whole.get_output_tensors()])
    assert job[1] == 1 and "type expected float32, found int8" in whole.message(job)


def test_scales_of_power_of_two_tensors() -> None:
    model = TinyModel()
    tensors = model.meta()["tensors"]
    for name in ("x", "y"):
        tensors[name]["npu"] |= {"scale": [0.125] * CHANNELS, "zero_point": [0] * CHANNELS, "fix_point": 3}
    graph = xir.Graph(TinyModel(meta_changes={"tensors": tensors}).build())
    runner = vart.Runner.create_runner(graph.get_root_subgraph().get_children()[1])
    assert vart.get_input_scale(runner.get_input_tensors()[0]) == 8.0
    assert vart.get_output_scale(runner.get_output_tensors()[0]) == 0.125


def test_arrays_of_several_batches(folder: Path) -> None:
    """`enable_dynamic_array`, as in the vendor's module: one job, the network's batches in it one after the other."""
    runner = vart.Runner.create_runner(folder)
    feeds = np.concatenate([feed(seed) for seed in range(3)])
    outputs = [np.zeros((3, *t.dims[1:]), np.float32) for t in runner.get_output_tensors()]
    job = runner.execute_async([feeds], outputs, True)
    assert job[1] == 0 and runner.wait(job) == 0 and runner.wait(job) == 3
    for seed in range(3):
        for index, tensor in enumerate(runner.get_output_tensors()):
            wanted = expected(feed(seed))[tensor.name]
            wanted = wanted.transpose(0, 2, 3, 1) if tensor.name == "z" else wanted
            np.testing.assert_allclose(outputs[index][seed : seed + 1], wanted, rtol=1e-6)
    feeds[1, 0, 0, 0] = np.nan
    job = runner.execute_async([feeds], outputs, True)
    assert runner.wait(job) == 1 and runner.message(job) == "tensor 'x': contains NaN, which has no int8 value"
    with pytest.raises(UsageError, match=r"different numbers of batches: \[2, 3\]"):
        runner.execute_async([feeds[:2]], outputs, True)
    with pytest.raises(UsageError, match=r"x: a batch of \(0,\); expected a multiple of 1"):
        runner.execute_async([feeds[:0]], outputs, True)


def test_many_jobs_in_flight(folder: Path) -> None:
    """Distinct ids, waited for in any order, by several threads and workers."""
    runner = vart.Runner.create_runner(folder, workers=2)
    jobs, results = [], []
    for seed in range(50):
        outputs = [np.empty(t.dims, np.float32) for t in runner.get_output_tensors()]
        jobs.append(runner.execute_async([feed(seed)], outputs))
        results.append(outputs)
    assert len({job for job, _ in jobs}) == 50 and all(status == 0 for _, status in jobs)
    statuses: dict[int, int] = {}

    def wait(part: int) -> None:
        for index in range(part, 50, 4):
            statuses[index] = runner.wait(jobs[49 - index])

    threads = [threading.Thread(target=wait, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses.values()) == {0} and len(statuses) == 50
    for seed, outputs in enumerate(results):
        np.testing.assert_allclose(outputs[0], expected(feed(seed))["o"], rtol=1e-6)
    assert "npuforge_queue_depth" in runner._graph.session("sim", 1).prometheus()


def test_failures_are_statuses_with_a_message(folder: Path) -> None:
    runner = vart.Runner.create_runner(folder)
    good = [np.empty(t.dims, np.float32) for t in runner.get_output_tensors()]
    bad = feed()
    bad[0, 0, 0, 0] = np.nan
    job = runner.execute_async([bad], good)
    assert job[1] == 0 and runner.wait(job) == 1
    assert runner.message(job) == "tensor 'x': contains NaN, which has no int8 value"
    job = runner.execute_async([feed()[:, :2].copy()], good)
    assert runner.wait(job) == 1 and "shape expected 1x4x6x5, found 1x2x6x5" in runner.message(job)
    job = runner.execute_async([feed()], good[:1])
    assert job[1] == 1 and runner.wait(job) == 1 and runner.message(job) == "output 'z': no buffer was given"
    job = runner.execute_async([feed()], [good[0], np.empty((1, 2), np.float32)])
    assert runner.wait(job) == 1 and "output 'z': expected room for 480 bytes, found 8" in runner.message(job)
    job = runner.execute_async([feed()], [good[0], np.empty(good[1].shape, np.int32)])
    assert runner.wait(job) == 1 and runner.message(job) == "output 'z': type expected float32, found int32"
    with pytest.raises(UsageError, match=r"output 1: type expected .*, found float64"):
        runner.execute_async([feed()], [good[0], np.empty(good[1].shape)])
    with pytest.raises(NpuforgeError, match="shape expected"):
        runner.run([feed()[:, :1].copy()])
    done = runner.execute_async([feed()], good)
    assert runner.wait(done) == 0 and runner.message(done) == ""
    assert runner.wait(done) == 3  # a job is waited for once
    assert runner.wait((12345, 0)) == 3
    with pytest.raises(UsageError, match="expected a writable array"):
        frozen = np.empty(good[0].shape, np.float32)
        frozen.setflags(write=False)
        runner.execute_async([feed()], [frozen, good[1]])
    with pytest.raises(UsageError, match="expected a C-contiguous array"):
        runner.execute_async([np.asfortranarray(feed())], good)


def test_timeout(folder: Path) -> None:
    """0 only looks; the job can still be waited for."""
    runner = vart.Runner.create_runner(folder, "csim")
    outputs = [np.empty(t.dims, np.float32) for t in runner.get_output_tensors()]
    jobs = [runner.execute_async([feed()], outputs) for _ in range(30)]
    assert runner.wait(jobs[-1], 0) in (0, 2)
    assert [runner.wait(job) for job in jobs[:-1]] == [0] * 29
    assert runner.wait(jobs[-1], 10000) in (0, 3)


def test_destroyed_with_jobs_queued(folder: Path) -> None:
    graph = xir.Graph.deserialize(folder)
    for _ in range(30):
        runner = vart.Runner.create_runner(graph.get_root_subgraph(), workers=2)
        for _ in range(10):
            runner.execute_async([feed()], [np.empty(t.dims, np.float32) for t in runner.get_output_tensors()])
        del runner
    assert Session(folder).run([feed().transpose(0, 3, 1, 2)])


def test_what_cannot_be_opened(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file"):
        xir.Graph.deserialize(tmp_path / "other.bin")
    (tmp_path / "bad.xmodel").write_bytes(b"<html>")
    with pytest.raises(FormatError):
        xir.Graph.deserialize(tmp_path / "bad.xmodel")
    with pytest.raises(UsageError, match="mode: expected run, sim or csim, found 'fast'"):
        vart.Runner.create_runner(folder, "fast")
    users = xir.Graph.deserialize(folder).get_root_subgraph().get_children()[0]
    with pytest.raises(UsageError, match="holds the network's inputs"):
        vart.Runner.create_runner(users)
