"""The ladder on whole networks: every layer's bits by numpy == csim == sim, on real images, no tolerance.

By default the bundled networks (from the files of a build folder) and yolo_fastest_1.1 on one image; behind `-m full` the others, three images
for yolo_fastest_1.1 and yolox_nano, both archs and arithmetic modes, every token policy and instruction set.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from ladder import ARCHS, DATA, IMAGES, ROOT, Binary, Quantised, climb, compare_pools, compile_graph, quantise_network

from npuforge.compile.context import Options
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.pipeline import compile_model
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.isa.binfile import read_bin
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.scenes.write import write_folder

DEMO = ROOT / "scripts" / "demo_data" / "demo.onnx"
ORIENTED = DEMO.with_name("oriented.onnx")
NETWORKS: dict[
    str, tuple[Path, str | Path, int, int]
] = {  # model, preset, images in the full run, NPU layers that must be seen at least
    "demo": (DEMO, DEMO.with_suffix(".yaml"), 3, 24),
    "oriented": (ORIENTED, ORIENTED.with_suffix(".yaml"), 3, 30),
    "yolo_fastest_1.1": (DATA / "models" / "yolo_fastest_1.1.onnx", "yolo_fastest_1.1", 3, 100),
    "yolox_nano": (DATA / "models" / "yolox_nano_kazuhito.onnx", "yolox_nano", 3, 120),
    "nanodet_m": (DATA / "models" / "nanodet_m.onnx", "nanodet_m", 1, 80),
    "fastestdet": (DATA / "models" / "fastestdet.onnx", "fastestdet", 1, 80),
    "yunet": (DATA / "models" / "yunet_n_320_320.onnx", "yunet", 1, 60),
    "ultraface": (DATA / "models" / "ultraface_RFB-320.onnx", "ultraface", 1, 50),
    "blazeface": (DATA / "models" / "blazeface_front_128x128.onnx", "blazeface", 1, 30),
}
absent = pytest.mark.skipif(not IMAGES.is_dir(), reason=f"{IMAGES} is absent")


def images(count: int) -> list[Path]:
    """Images that calibration did not see, of several sizes."""
    return sorted(IMAGES.glob("*.jpg"))[70 : 70 + count]


@lru_cache(maxsize=2)
def network(name: str, mode: str, calibration: int = 4) -> Quantised:
    """The integer graph of one of NETWORKS."""
    model, preset, _, _ = NETWORKS[name]
    return quantise_network(model, preset, mode, sorted(IMAGES.glob("*.jpg"))[:calibration])


def holds(integer: Quantised, binary: Binary, image: Path, least: int) -> None:
    """The whole ladder for one image; also the pools of the first NPU partition under every policy and instruction set."""
    feeds = {integer.qgraph.graph.inputs[0]: integer.feed(image)}
    expected = integer.integers(feeds)
    assert len({layer["tensor"] for layer in binary.meta["layers"]} & set(expected)) >= least
    found = climb(integer, binary, feeds, expected=expected) + compare_pools(binary, feeds, expected)
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("name", "mode", "arch"),
    [("demo", "fine", "nf-b4096"), ("demo", "pow2", "nf-b1024"), ("oriented", "fine", "nf-b1024")],
)
def test_bundled_networks_from_their_build_folders(name: str, mode: str, arch: str, tmp_path: Path) -> None:
    scenes = sorted(write_folder(tmp_path / "scenes", 5, 3).parent.glob("images/*.png"))
    model, preset, _, least = NETWORKS[name]
    options = Options(
        model, load(arch), tmp_path / "build", preprocess=load_preprocess(preset), calibration=scenes[:2], mode=mode
    )
    compile_model(options)
    build = open_build(tmp_path / "build")
    parsed = read_bin(build.bin)
    holds(Quantised(build.qgraph, build.preprocess), Binary(parsed.image, parsed.json()), scenes[2], least)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["nf-b4096", pytest.param("nf-b1024", marks=pytest.mark.full)])
@pytest.mark.data
@absent
def test_yolo_fastest_on_one_image(arch: str) -> None:
    integer = network("yolo_fastest_1.1", "fine", 1)
    holds(integer, compile_graph(integer, arch), images(1)[0], NETWORKS["yolo_fastest_1.1"][3])


@pytest.mark.full
@pytest.mark.data
@absent
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("mode", ["fine", "pow2"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network(name: str, mode: str, arch: str) -> None:
    integer = network(name, mode)
    binary = compile_graph(integer, arch)
    for image in images(NETWORKS[name][2]):
        holds(integer, binary, image, NETWORKS[name][3])
