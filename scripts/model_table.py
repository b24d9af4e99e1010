"""Compiles and runs every ONNX file of a data folder (README.md there) and writes the table docs/models.md.

    python -m npuforge.scripts.model_table ../shared/data -o docs/models.md

A file that fails gets a line with the error. Accuracy where there is truth: mAP50-95 of tiny_coco's 50 images, or the share of marked faces that are found.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuforge.board_runtime.heads import COCO_SETTINGS, Head
from npuforge.compile import pipeline
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import NpuforgeError
from npuforge.compile.ir.image import list_images
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.ir.samples import Sample
from npuforge.compile.steps.partition import explain
from npuforge.hw_kernels import arch as arches
from npuforge.quant.executor import Arrays
from npuforge.scripts.build_folder import Build, open_build
from npuforge.scripts.columns import DeviceColumn, FloatColumn
from npuforge.scripts.common import parse_shapes
from npuforge.scripts.comparison import OutputError
from npuforge.scripts.datasets import Dataset, load_dataset
from npuforge.scripts.mean_average_precision import mean_average_precision

CALIBRATION_IMAGES = 32
COMPARED_IMAGES = 8
EYES_APART = 12.0  # pixels; smaller faces are not counted
Column = Callable[[Sample], Arrays]
IMAGENET = Preprocess(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
PLUS_MINUS_ONE = Preprocess(mean=[127.5] * 3, std=[128.0] * 3, layout="NHWC")


@dataclass(frozen=True)
class Entry:
    """How a file is compiled. `preset`: a built-in record's name or a record; `truth`: `boxes`, `faces`, or none."""

    preset: str | Preprocess = ""
    shape: str = ""
    truth: str = ""


ENTRIES = {
    "blazeface_front_128x128": Entry("blazeface", truth="faces"),
    "fastestdet": Entry("fastestdet", truth="boxes"),
    "mtcnn_onet": Entry(PLUS_MINUS_ONE, "1x48x48x3"),
    "mtcnn_pnet": Entry(PLUS_MINUS_ONE, "1x96x96x3"),
    "mtcnn_rnet": Entry(PLUS_MINUS_ONE, "1x24x24x3"),
    "nanodet_m": Entry("nanodet_m", truth="boxes"),
    "ppocr_cls": Entry(Preprocess(mean=[127.5] * 3, std=[127.5] * 3), "1x3x48x192"),
    "ppocrv4_det": Entry(IMAGENET, "1x3x320x320"),
    "ultraface_RFB-320": Entry("ultraface", truth="faces"),
    "ultraface_RFB-320_simplified": Entry("ultraface_raw", truth="faces"),
    "yolo_fastest_1.1": Entry("yolo_fastest_1.1", truth="boxes"),
    "yolo_fastest_1.1_qdq_int8": Entry("yolo_fastest_1.1", truth="boxes"),
    "yolox_nano_handsign_with_nms": Entry(Preprocess(color="BGR", resize="letterbox_topleft")),
    "yolox_nano_kazuhito": Entry("yolox_nano", truth="boxes"),
    "yunet_n_320_320": Entry("yunet", truth="faces"),
    "yunet_n_dynamic": Entry("yunet", "1x3x320x320", truth="faces"),
}


def record_of(entry: Entry) -> Preprocess | None:
    """The record; a plain one leaves its head to be recognised."""
    if isinstance(entry.preset, Preprocess):
        return Preprocess(**{**vars(entry.preset), "head": HeadSpec("auto")})
    return load_preprocess(entry.preset) if entry.preset else None


def found_faces(rows: list[np.ndarray], dataset: Dataset) -> str:
    """Faces with eyes and nose marked and at least 12 pixels between the eyes: how many lie in a box of sensible size."""
    total = found = 0
    for truth, boxes in zip(dataset.images, rows, strict=True):
        points = np.zeros((0, 3, 3)) if truth.keypoints is None else truth.keypoints[:, :3]
        for face in points:
            eyes = float(np.linalg.norm(face[1, :2] - face[2, :2]))
            if not (face[:, 2] == 2).all() or eyes < EYES_APART:
                continue
            total += 1
            centre = face[:, :2].mean(axis=0)
            found += any((b[:2] <= centre).all() and (centre <= b[2:4]).all() and b[2] - b[0] < 6 * eyes for b in boxes)
    return f"{found} of {total}"


def accuracy(build: Build, truth: str, data: Path) -> tuple[str, str]:
    """(float, int8 on the simulator) on tiny_coco."""
    kind = "instances" if truth == "boxes" else "person_keypoints"
    annotations = data / f"tiny_coco/annotations/{kind}_train2017.json"
    names = build.preprocess.class_names if truth == "boxes" else []
    dataset = load_dataset(data / "tiny_coco/train2017", annotations, names)
    head = Head(build.preprocess, COCO_SETTINGS if truth == "boxes" else None)
    columns: tuple[Column, Column] = (FloatColumn(build), DeviceColumn(build, "sim"))
    rows: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for entry in dataset.images:
        image = build.sample(entry.path)
        for column, into in zip(columns, rows, strict=True):
            into.append(head.detect(column(image), image.geometry))
    if truth == "faces":
        return f"{found_faces(rows[0], dataset)} faces", f"{found_faces(rows[1], dataset)} faces"
    first, second = (f"{100 * mean_average_precision(dataset, r).map:.1f}" for r in rows)
    return f"mAP {first}", f"mAP {second}"


def lowest_cosine(build: Build, images: list[Path]) -> str:
    """Of all outputs and images, float against device; of outputs whose length the run decides, the rows in all images."""
    worst, rows, varies = OutputError(), [0, 0], False
    columns: tuple[Column, Column] = (FloatColumn(build), DeviceColumn(build, "sim"))
    for path in images:
        image = build.sample(path)
        outputs: list[Arrays] = [column(image) for column in columns]
        for name, value in outputs[0].items():
            found = outputs[1][name]
            varies |= value.shape != found.shape
            rows = [rows[0] + len(value), rows[1] + len(found)]
            worst.add(name, value, found)
    if varies:
        return f"{rows[1]} rows, float {rows[0]}"
    return f"cosine {worst.cosine:.4f}"


def row(model: Path, data: Path) -> str:
    """One line of the table."""
    entry = ENTRIES.get(model.stem, Entry())
    images = list_images(data / "coco128/images/train2017")
    with tempfile.TemporaryDirectory() as folder:
        options = Options(
            model=model,
            arch=arches.load("nf-b4096"),
            output=Path(folder) / "build",
            shapes=parse_shapes([entry.shape] if entry.shape else []),
            preprocess=record_of(entry),
            calibration=images[:CALIBRATION_IMAGES],
        )
        start = time.perf_counter()
        try:
            compiled, _ = pipeline.compile_model(options)
            seconds = time.perf_counter() - start
            rows = explain(pipeline.inspect(options))
            build = open_build(Path(folder) / "build")
            if entry.truth:
                floats, integers = accuracy(build, entry.truth, data)
            else:
                floats, integers = "–", lowest_cosine(build, images[-COMPARED_IMAGES:])
        except NpuforgeError as error:
            return f"| {model.stem} | {entry.shape or 'as in the file'} | fails: {error} | | | | | | |"
    total = sum(r.macs for r in rows)
    on_npu = sum(r.macs for r in rows if r.device == "NPU")
    partitions = ", ".join(p["device"] for p in compiled.meta["partitions"])
    head = build.preprocess.head.kind
    cells = [
        model.stem,
        entry.shape or "as in the file",
        partitions,
        f"{100 * on_npu / total:.1f} % of {total / 1e6:.1f} M",
        "tensors" if head == "none" else f"`{head}`",
        floats,
        integers,
        f"{compiled.performance['cycles']:,}",
        f"{seconds:.0f} s",
    ]
    return f"| {' | '.join(cells)} |"


HEADER = """# Networks of the development data

Every ONNX file of `../shared/data/models` (real networks as their authors exported them), compiled for `nf-b4096` with {count} calibration images of coco128 and run on the
simulator. Generated: `python -m npuforge.scripts.model_table ../shared/data -o docs/models.md`. Accuracy, float in ONNX Runtime and int8 on the simulator: mAP50-95 on
tiny_coco's 50 images; for face detectors the faces with eyes and nose marked, at least 12 pixels between the eyes, that lie in a detection; without truth the lowest
cosine of any output on {compared} images (which hold hardly any text or hand signs: maps of almost nothing have a low cosine). BlazeFace sees large faces only. All lines are of commit {commit}, written on {date}. Cycles are simulated; compile times are of a shared machine ({processors} processors, others
working on it) and vary by a factor of several.

| file | shape | partitions | MACs on the NPU | head | float | int8 | simulated cycles | compiled in |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def commit() -> str:
    """Of the project's sources that run, with a mark where they differ from it."""
    folder = Path(__file__).resolve().parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the data folder, with models/, coco128/ and tiny_coco/")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    lines = []
    for model in sorted((arguments.data / "models").glob("*.onnx")):
        lines.append(row(model, arguments.data))
        print(lines[-1], flush=True)
    facts = {"commit": commit(), "date": datetime.date.today().isoformat(), "processors": os.cpu_count()}
    text = HEADER.format(count=CALIBRATION_IMAGES, compared=COMPARED_IMAGES, **facts) + "\n".join(lines) + "\n"
    arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
