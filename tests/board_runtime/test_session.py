"""Whole models in the C++ runtime: results, types, errors, isolation between threads, recycling of memory, metrics, profile."""

from __future__ import annotations

import gc
import json
import re
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from tiny_model import CHANNELS, LANES, H, TinyModel, W, node

from npuforge.board_runtime import _native as native
from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.session import DEVICES, Session
from npuforge.compile.ir.errors import UsageError, WriteError


def feed(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, (1, CHANNELS, H, W)).astype(np.float32)


def check(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, want in expected.items():
        np.testing.assert_allclose(found[name], want, rtol=1e-6, atol=1e-6)


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("device", ["sim", "csim"])  # uio: test_uio.py
@pytest.mark.parametrize("second", [False, True])
def test_results(device: str, second: bool) -> None:
    model = TinyModel(second=second)
    session = Session(model.build(), device=device)
    for seed in range(3):
        check(session.run({"x": feed(seed)}), model.expected(feed(seed)))
    check(session.run([feed(5)]), model.expected(feed(5)))


def test_all_devices_are_built() -> None:
    assert set(DEVICES) == {"sim", "csim", "uio"}


def test_rounding_and_saturation_at_the_border() -> None:
    """Ties go up, both ends saturate, infinities too."""
    model = TinyModel()
    values = np.array(
        [0.5, -0.5, 1.5, -1.5, 1e9, -1e9, np.inf, -np.inf, 0.49999997, 126.5, 127.5, -128.5, -129.5], np.float32
    )
    x = np.zeros((1, CHANNELS, H, W), np.float32)
    x[0, 3].flat[: len(values)] = values * np.float32(0.0625)  # exact products; zero point -128
    session = Session(model.build())
    outputs, trace = session.trace({"x": x})
    np.testing.assert_array_equal(trace[0].data, model.quantised(x))
    check(outputs, model.expected(x))


def test_images() -> None:
    """uint8 pixels N, H, W, C and preprocessed float values of the same pixels give the same bytes."""
    model = TinyModel(image=True)
    session = Session(model.build())
    pixels = np.random.default_rng(1).integers(0, 256, (1, H, W, CHANNELS)).astype(np.uint8)
    meta = model.meta()["tensors"]["x"]["npu"]
    real = ((pixels.astype(np.float64) - meta["image_mean"]) * meta["scale"]).transpose(0, 3, 1, 2).astype(np.float32)
    by_pixels, trace = session.trace({"x": pixels})
    np.testing.assert_array_equal(trace[0].data, (pixels.astype(np.int64) - 128).astype(np.int8))
    by_values, trace = session.trace({"x": real})
    np.testing.assert_array_equal(trace[0].data, (pixels.astype(np.int64) - 128).astype(np.int8))
    check(by_values, by_pixels)
    assert session.inputs[0].image and session.inputs[0].shape == (1, CHANNELS, H, W)


def test_nhwc_input() -> None:
    model = TinyModel(meta_changes={"input_layout": {"x": "NHWC"}})
    session = Session(model.build())
    assert session.inputs[0].shape == (1, H, W, CHANNELS)
    check(session.run({"x": feed().transpose(0, 2, 3, 1)}), model.expected(feed()))
    with pytest.raises(UsageError, match="input 'x': shape expected 1x4x6x5, found 1x5x4x6"):
        session.run({"x": feed()})


def test_input_that_the_cpu_reads() -> None:
    """The first node runs on the CPU, and the NPU reads the input as well; in every layout and type it may come in."""
    meta = TinyModel(second=True).meta()
    partitions = meta["partitions"]
    order = [
        partitions[0],
        {**partitions[1], "inputs": ["x"], "nodes": [node("negate", "Neg", ["x"], ["n"])]},
        *partitions[2:],
    ]
    session = Session(TinyModel(second=True, meta_changes={"partitions": order}).build())
    z = TinyModel().expected(-feed())["y"]
    runner = vart.Runner.create_runner(
        xir.Graph(TinyModel(second=True, meta_changes={"partitions": order}).build()).get_root_subgraph()
    )
    for _ in range(2):  # one after the other: no layout leaves something behind for the next
        np.testing.assert_array_equal(session.run({"x": feed()})["z"], z)
        nhwc = np.ascontiguousarray(feed().transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(runner.run([nhwc])[1], z.transpose(0, 2, 3, 1))
        (_, found) = session.native.run([nhwc], nhwc=True)
        np.testing.assert_array_equal(found, z)
        real = TinyModel().expected(feed())["y"]  # int8 in: the CPU reads the real values of the bytes
        (_, found) = session.native.run([TinyModel().quantised(feed())], nhwc=True)
        np.testing.assert_array_equal(found, TinyModel().expected(-real)["y"])


def test_trace_and_pad_lanes() -> None:
    model = TinyModel(second=True)
    _, trace = Session(model.build()).trace({"x": feed()})
    assert [(t.id, t.name, t.tensor, t.pad_lane_errors) for t in trace] == [
        ("L0000", "copy0", "y", 0),
        ("L0001", "copy1", "y", 0),
    ]
    for record in trace:
        np.testing.assert_array_equal(record.data, model.quantised(feed()))
    # A trace point that calls a used lane a pad lane must count its bytes: the check can fail.
    layers = model.meta()["layers"]
    layers[0]["trace"]["lanes"] = LANES[:-1]
    _, trace = Session(TinyModel(second=True, meta_changes={"layers": layers}).build()).trace({"x": feed()})
    assert trace[0].pad_lane_errors == np.count_nonzero(model.quantised(feed())[..., -1])


def test_folded_constants_and_views() -> None:
    """Nodes on constants are computed at load; ConstantOfShape, Shape and Dropout included."""
    nodes = [
        node("shape_of", "Shape", ["y"], ["dims"]),
        node("ones", "ConstantOfShape", ["dims"], ["one"], {"value": [1.0]}),
        node("keep", "Dropout", ["y"], ["same"]),
        node("sum", "Add", ["same", "one"], ["plus"]),
        node("sigmoid", "Sigmoid", ["plus"], ["s"]),
        node("reshape", "Reshape", ["s", "shape"], ["r"]),
        node("join", "Concat", ["r", "constant"], ["o"], {"axis": 2}),
    ]
    partitions = TinyModel().meta()["partitions"]
    partitions[1]["nodes"] = nodes
    session = Session(TinyModel(meta_changes={"partitions": partitions}).build())
    names = {p[0] for p in session.native.cpu_placements}
    assert names == {"y", "plus", "s", "o"}  # r and same are views, dims and one were folded
    expected = TinyModel().expected(feed())
    s = 1.0 / (1.0 + np.exp(-(expected["y"].astype(np.float64) + 1.0)))
    np.testing.assert_allclose(session.run({"x": feed()})["o"][:, :, :-2], s.reshape(1, CHANNELS, -1), rtol=1e-6)


def test_in_graph_nms_gives_its_own_shape() -> None:
    """A result whose size only the data decide, and nodes behind it."""
    partitions = TinyModel().meta()["partitions"]
    tensors = TinyModel().meta()["tensors"]
    tensors |= {"o": {"shape": [-1, 1], "dtype": "int64", "npu": None}}
    partitions[1]["nodes"] = [
        node("flat", "Reshape", ["y", "shape"], ["rows"]),
        node("boxes", "Slice", ["rows"], ["four"], {"starts": [0], "ends": [4], "axes": [1]}),
        node("turn", "Transpose", ["four"], ["boxes"], {"perm": [0, 2, 1]}),
        node("scores", "Slice", ["rows"], ["last"], {"starts": [4], "ends": [5], "axes": [1]}),
        node("nms", "NonMaxSuppression", ["boxes", "last", "most"], ["kept"]),
        node("which", "Slice", ["kept"], ["o"], {"starts": [2], "ends": [3], "axes": [1]}),
    ]

    class Nms(TinyModel):
        def meta(self) -> dict:
            meta = super().meta() | {"partitions": partitions, "tensors": tensors, "outputs": ["o"]}
            meta["constants"]["most"] = {"section": "C0001", "shape": [3], "dtype": "int64"}
            return meta

    model = Nms()
    meta = model.meta()
    meta["constants"] |= {"most": {"section": "C0002", "shape": [1], "dtype": "int64"}}
    model.meta = lambda: meta  # type: ignore[method-assign]
    image = build_with_extra(model, "C0002", np.array([7], "<i4").tobytes())
    session = Session(image)
    sizes = set()
    for seed in range(6):
        found = session.run({"x": feed(seed)})["o"]
        y = TinyModel().expected(feed(seed))["y"].reshape(CHANNELS, -1)
        boxes, scores = y[:4].T, y[4]
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        kept: list[int] = []
        for i in order:
            if len(kept) < 7 and all(overlap(boxes[i], boxes[j]) <= 0 for j in kept):
                kept.append(i)
        assert found.dtype == np.int64 and found[:, 0].tolist() == kept
        sizes.add(len(kept))
    assert len(sizes) > 1


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Area of the intersection."""
    sides = [
        min(max(a[k], a[k + 2]), max(b[k], b[k + 2])) - max(min(a[k], a[k + 2]), min(b[k], b[k + 2])) for k in (0, 1)
    ]
    empty = any(r[k] == r[k + 2] for r in (a, b) for k in (0, 1))
    return 0.0 if empty else max(sides[0], 0.0) * max(sides[1], 0.0)


def build_with_extra(model: TinyModel, name: str, data: bytes) -> bytes:
    """The model's file with one more int32 section."""
    from npuforge.hw_kernels.isa.binfile import BinWriter, Dtype, parse_bin

    writer = BinWriter()
    for section in parse_bin(model.build()).sections.values():
        writer.add(section.name, section.dtype, section.data)
    writer.add(name, Dtype.INT32, data)
    return writer.to_bytes()


def test_wrong_inputs_are_one_line_errors() -> None:
    session = Session(TinyModel().build())
    bad = feed()
    bad[0, 2, 1, 3] = np.nan
    cases = [
        ({"x": feed()[:, :4]}, "input 'x': shape expected 1x5x4x6, found 1x4x4x6"),
        ({"x": feed().astype(np.int64)}, "input 'x': type expected float32, found int64"),
        ({"x": feed().astype(np.float64)}, "type expected float32.*found float64"),
        ({"x": np.zeros((1, H, W, CHANNELS), np.uint8)}, "input 'x': expected float32, found uint8"),
        ({"x": bad}, "tensor 'x': contains NaN"),
        ({"z": feed()}, "expected the inputs x, found z"),
        ([feed(), feed()], "expected 1 inputs, found 2"),
    ]
    for inputs, message in cases:
        with pytest.raises(Exception, match=message) as caught:
            session.run(inputs)
        assert "\n" not in str(caught.value) and type(caught.value).__module__.endswith("ir.errors")
    check(session.run({"x": feed()}), TinyModel().expected(feed()))  # a failed run leaves nothing behind
    with pytest.raises(UsageError, match="device: expected sim, csim or uio, found 'gpu'"):
        Session(TinyModel().build(), device="gpu")
    with pytest.raises(UsageError, match="threads: expected 1 or more, found 0"):
        Session(TinyModel().build(), threads=0)


def test_non_contiguous_input() -> None:
    strided = np.asfortranarray(feed())
    check(Session(TinyModel().build()).run({"x": strided}), TinyModel().expected(feed()))


def test_threads_and_models_do_not_interfere() -> None:
    models = [TinyModel(), TinyModel(second=True), TinyModel(arch="nf-b4096")]
    sessions = [Session(m.build(), threads=1 + i % 2) for i, m in enumerate(models)]
    expected = [[m.expected(feed(seed)) for seed in range(8)] for m in models]
    failures: list[str] = []

    def work(seed: int) -> None:
        for _ in range(60):
            for session, wanted in zip(sessions, expected, strict=True):
                found = session.run({"x": feed(seed)})
                for name, want in wanted[seed].items():
                    if not np.allclose(found[name], want, rtol=1e-6, atol=1e-6):
                        failures.append(name)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_flat_memory() -> None:
    """Sessions created and destroyed by the thousand, on a warm pool: no growth."""
    image = TinyModel(second=True).build()

    def cycle(count: int) -> None:
        for _ in range(count):
            session = Session(image)
            session.run([feed()])

    cycle(300)
    gc.collect()
    before, pool = resident_bytes(), native.pool_statistics()
    cycle(3000)
    gc.collect()
    after = native.pool_statistics()
    assert resident_bytes() - before < 2 << 20
    assert after["allocations"] == pool["allocations"]  # every buffer was recycled
    assert after["bytes_in_use"] == pool["bytes_in_use"]


def test_metrics() -> None:
    session = Session(TinyModel().build())
    for _ in range(5):
        session.run([feed()])
    with pytest.raises(UsageError):
        session.run([feed()[:, :1]])
    text = session.prometheus()
    labels = 'model="tiny",device="sim"'
    assert f"npuforge_inference_seconds_count{{{labels}}} 5" in text
    assert f"npuforge_requests_total{{{labels}}} 6" in text
    assert f"npuforge_errors_total{{{labels}}} 1" in text
    assert f"npuforge_in_flight{{{labels}}} 0" in text
    buckets = [int(v) for v in re.findall(r"_bucket{[^}]*} (\d+)", text)]
    assert buckets == sorted(buckets) and buckets[-1] == 5
    for line in text.splitlines():  # the text format: comments, or name{labels} number
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{(\w+=\"[^\"]*\",?)+\})? [0-9.e+-]+", line), line


def test_profile(tmp_path: Path) -> None:
    session = Session(TinyModel(second=True).build())
    file = tmp_path / "trace.json"
    session.profile([feed()], file, runs=2)
    spans = [e for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"]
    assert [e["cat"] for e in spans] == ["run", "NPU", "CPU", "NPU", "CPU"] * 2
    assert all(e["dur"] >= 0 for e in spans) and spans[5]["ts"] >= spans[0]["ts"] + spans[0]["dur"]
    with pytest.raises(WriteError, match="cannot be written"):
        session.profile([feed()], tmp_path / "no" / "trace.json")


def test_arena_has_no_collisions() -> None:
    """Tensors that live at the same time do not share bytes; the peak is close to what must live at once."""
    session = Session(TinyModel(second=True).build())
    places = session.native.cpu_placements
    for i, (name, offset, size, first, last) in enumerate(places):
        assert offset % 64 == 0 and offset + size <= session.native.arena_bytes
        for other, offset2, size2, first2, last2 in places[:i]:
            together = first <= last2 and first2 <= last
            assert not together or offset + size <= offset2 or offset2 + size2 <= offset, (name, other)
