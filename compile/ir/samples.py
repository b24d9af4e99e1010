"""One sample of a network's inputs: an image file, with a `.npz` of the same name beside it for further inputs; or a `.npz` with every input by name, or a
`.npy` of the only input that has no other value.

Inputs that are the same for all samples are given once (`--input NAME=FILE.npy`). A value of the sample goes before one that was given once. Arrays are in the
ONNX file's own layout and preprocessed, as ONNX Runtime takes them.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuforge.compile.ir.errors import CalibrationError, InputError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.image import IMAGE_SUFFIXES, Geometry, fit, load_image, to_tensor
from npuforge.compile.ir.preprocess import Preprocess

SUFFIX, SINGLE = ".npz", ".npy"
Inputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class InputSpec:
    """Shape in the ONNX file's layout and numpy dtype name of a network input."""

    shape: tuple[int, ...]
    dtype: str


@dataclass
class Sample:
    """What the network takes. `pixels`: uint8 [H, W, channels] in model order; `inputs`: every input by name, as the ONNX file takes it.

    `picture`: the image itself, uint8 [H, W, 3] BGR (of a `.npz`: what its tensor shows).
    """

    path: Path
    pixels: np.ndarray
    inputs: dict[str, np.ndarray]
    geometry: Geometry
    picture: np.ndarray


def input_specs(graph: Graph) -> dict[str, InputSpec]:
    """Of every input of the network."""
    specs = {}
    for name in graph.inputs:
        shape = graph.tensors[name].shape
        if graph.input_layout.get(name) == "NHWC":
            shape = (shape[0], *shape[2:], shape[1])
        specs[name] = InputSpec(shape, graph.tensors[name].dtype)
    return specs


def in_graph_layout(graph: Graph, inputs: Inputs) -> dict[str, np.ndarray]:
    """Inputs of the file as those of the graph, whose maps are N, C, H, W."""
    return {n: v.transpose(0, 3, 1, 2) if graph.input_layout.get(n) == "NHWC" else v for n, v in inputs.items()}


def list_samples(folder: str | Path) -> list[Path]:
    """The images of a folder and the `.npz` files that belong to none of them (or the one file given), by name. CalibrationError where there is none.

    `.npy` files are samples where there is no image: beside images they are values that `--input` names.
    """
    path = Path(folder)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise CalibrationError(f"{path}: no such image file or folder")
    files = [p for p in path.iterdir() if p.is_file()]
    images = [p for p in files if p.suffix.lower() in IMAGE_SUFFIXES]
    stems = {p.stem for p in images}
    arrays = (SUFFIX,) if images else (SUFFIX, SINGLE)
    alone = [p for p in files if p.suffix.lower() in arrays and p.stem not in stems]
    if not images and not alone:
        expected = ", ".join("*" + s for s in (*IMAGE_SUFFIXES, SUFFIX, SINGLE))
        raise CalibrationError(f"{path}: holds no image, expected files named {expected}")
    return sorted(images + alone, key=lambda p: p.name)


def companion(path: Path) -> Path | None:
    """The `.npz` beside an image that holds its further inputs, if there is one."""
    beside = path.with_suffix(SUFFIX)
    return beside if beside != path and beside.is_file() else None


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` by name. CalibrationError where it is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("one array without a name")
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        text = "no .npz file" if "pickle" in str(error) else str(error)
        raise CalibrationError(
            f"{path}: cannot be read as a sample ({text}); write it with numpy.savez(file, NAME=array, ...)"
        ) from error


def read_array(path: Path) -> np.ndarray:
    """The array of a `.npy`. CalibrationError where it is none."""
    try:
        value = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        text = "no .npy file" if "pickle" in str(error) else str(error)
        raise CalibrationError(f"{path}: cannot be read as a sample ({text}); write it with numpy.save") from error
    if not isinstance(value, np.ndarray):
        raise CalibrationError(f"{path}: holds several arrays; name the file .npz")
    return value


def load_sample(path: Path, record: Preprocess, specs: Mapping[str, InputSpec], fixed: Inputs | None = None) -> Sample:
    """Reads and prepares one sample. InputError where an input lacks or does not fit `specs`, CalibrationError where a file cannot be read."""
    suffix = path.suffix.lower()
    tensors = suffix in (SUFFIX, SINGLE)
    if not tensors and not record.takes_image:
        raise InputError(
            f"{path}: no input of the network takes an image; give samples as .npz files with {', '.join(specs)} by name"
            + (f", or as .npy files of {next(iter(specs))}" if len(specs) == 1 else "")
        )
    beside = path if suffix == SUFFIX else None if tensors else companion(path)
    given = {**(fixed or {}), **({} if beside is None else read_arrays(beside))}
    if suffix == SINGLE:
        given |= {_only_open(path, specs, given): read_array(path)}
    if not tensors:
        if record.input in given:
            raise InputError(
                f"{path}: input '{record.input}' is the image, found also an array for it; leave out --input {record.input}, or the array in the .npz beside it"
            )
        picture = load_image(path)
        pixels, geometry = fit(picture, record)
        given[record.input] = to_tensor(pixels, record)
    inputs = fitting(given, specs, str(path))
    if not record.takes_image:
        nothing = np.zeros((0, 0, 3), np.uint8)
        return Sample(path, nothing, inputs, Geometry(1.0, 1.0, 0.0, 0.0, 0, 0), nothing)
    if tensors:
        pixels = nearest_pixels(inputs[record.input], record)
        picture = bgr_picture(pixels, record)
        geometry = Geometry(1.0, 1.0, 0.0, 0.0, record.width, record.height)
    return Sample(path, pixels, inputs, geometry, np.ascontiguousarray(picture))


def _only_open(path: Path, specs: Mapping[str, InputSpec], given: Inputs) -> str:
    """The input that a `.npy` is for. InputError where it could be several."""
    lacking = [name for name in specs if name not in given]
    if len(lacking) != 1:
        raise InputError(
            f"{path}: a .npy is one array, the inputs {', '.join(lacking) or 'all have a value, nothing'} would take it; "
            "give a .npz with every input by name, or all inputs but one with --input"
        )
    return lacking[0]


def nearest_pixels(tensor: np.ndarray, record: Preprocess) -> np.ndarray:
    """The pixels uint8 [H, W, channels] that a preprocessed image shows."""
    image = tensor[0] if record.layout == "NHWC" else tensor[0].transpose(1, 2, 0)
    real = image.astype(np.float64) * np.asarray(record.std) + np.asarray(record.mean)
    return np.clip(np.floor(np.nan_to_num(real) + 0.5), 0, 255).astype(np.uint8)


def bgr_picture(pixels: np.ndarray, record: Preprocess) -> np.ndarray:
    """Model-order pixels as an image uint8 [H, W, 3], BGR."""
    if record.color == "GRAY":
        return np.repeat(pixels, 3, axis=2)
    return pixels[:, :, ::-1] if record.color == "RGB" else pixels


def fitting(given: Inputs, specs: Mapping[str, InputSpec], where: str) -> dict[str, np.ndarray]:
    """Every input of `specs` with its own dtype. InputError names the input, what was expected and found, and how to give it."""
    unknown = sorted(set(given) - set(specs))
    if unknown:
        raise InputError(f"{where}: the network has no input '{unknown[0]}'; its inputs are {', '.join(specs)}")
    found = {}
    for name, spec in specs.items():
        if name not in given:
            raise InputError(
                f"{where}: input '{name}' ({spec.dtype} {list(spec.shape)}) has no value; give it once with --input {name}=FILE.npy, "
                f"or per sample in a .npz of the image's name beside it"
            )
        value = np.asarray(given[name])
        if value.shape != spec.shape or not np.can_cast(value.dtype, spec.dtype, casting="same_kind"):
            raise InputError(
                f"{where}: input '{name}' takes {spec.dtype} {list(spec.shape)}, found {value.dtype} {list(value.shape)}"
            )
        found[name] = np.asarray(value, dtype=spec.dtype, order="C")  # a scalar stays one
    return found
