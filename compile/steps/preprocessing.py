"""The preprocessing step: the record the user declared, completed and checked against the network's input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuforge.compile.context import Context
from npuforge.compile.ir.errors import InputError, UnsupportedError, UsageError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess
from npuforge.compile.ir.words import counted
from npuforge.compile.steps.recognise_head import recognise

LARGEST_SIDE = 16384  # as for `width` and `height` of the record
FEWEST_LEVELS = 64  # integers that an image must be able to take: fewer are a mistake in the record
# Types of an image input: mean, std and their name where no record is given.
IMAGE_TYPES = {
    "float32": (0.0, 255.0, "pixel/255"),
    "uint8": (0.0, 1.0, "pixels as they are"),
    "int8": (128.0, 1.0, "pixel - 128"),
}


def complete(graph: Graph, record: Preprocess | None, shaped: bool = False) -> tuple[Preprocess, list[str]]:
    """The record with the network's size and layout filled in, and notices about what was assumed. InputError where they disagree.

    `shaped`: the network's size is one that the user typed (--shape); sizes that do not do are then a UsageError.
    """
    wrong = UsageError if shaped else InputError
    if record is None and not able_inputs(graph):
        record = Preprocess(color="NONE", mean=[], std=[])
    if record is not None and not record.takes_image:
        return _without_image(graph, record)
    name = image_input(graph, record.input if record is not None else "")
    shape = graph.tensors[name].shape
    layout = graph.input_layout.get(name, "NCHW")
    dtype = graph.tensors[name].dtype
    if len(shape) != 4 or dtype not in IMAGE_TYPES:
        raise UnsupportedError(
            f"input {name} takes {dtype} {list(shape)}, expected real numbers of an image or its pixels as uint8 or int8, "
            "[1, channels, height, width] or [1, height, width, channels]; export the network with such an input, or give color: NONE in --preprocess and samples as .npz"
        )
    height, width = shape[2:]
    if shape[0] != 1:
        raise wrong(
            f"input {name} has a batch of {shape[0]}, expected 1 (the device runs image by image); "
            f"export with a dynamic batch and give --shape {name}=1x{'x'.join(str(d) for d in shape[1:])}"
        )
    if max(height, width) > LARGEST_SIDE:
        raise wrong(f"input {name} is {width}x{height}, expected at most {LARGEST_SIDE} a side; give a smaller --shape")
    notices = []
    if record is None:
        color, channels = ("GRAY", 1) if shape[1] == 1 else ("RGB", 3)
        mean, std, what = IMAGE_TYPES[dtype]
        record = Preprocess(
            *(width, height, color), mean=[mean] * channels, std=[std] * channels, layout=layout, head=HeadSpec("auto")
        )
        notices.append(
            f"no --preprocess given: assuming {width}x{height}, {color}, {what}, stretched; results are wrong if the model was trained otherwise"
        )
    elif record.layout == "NHWC" and layout == "NCHW":
        notices.append(f"the preprocessing says layout: NHWC, input {name} takes NCHW {list(shape)}: NCHW is used")
    others = [t for t in graph.inputs if t != name]
    if others:
        notices.append(
            f"input {name} takes the image; {', '.join(others)}: from --input NAME=FILE.npy or a .npz beside each image"
        )
    record = replace(
        record, width=record.width or width, height=record.height or height, layout=layout, input=name, dtype=dtype
    )
    if (record.width, record.height) != (width, height):
        raise wrong(
            f"preprocessing gives {record.width}x{record.height} images, input {name} takes {width}x{height}; "
            "correct width and height, or the model's size with --shape"
        )
    if shape[1] != record.channels:
        remedy = {1: "give color: GRAY in --preprocess", 3: "give color: RGB or BGR in --preprocess"}
        raise InputError(
            f"input {name} has {counted(shape[1], 'channel')}, preprocessing (color {record.color}) gives {record.channels}; "
            + remedy.get(
                shape[1],
                "export the network with 3, or with 1 for grey images, or give color: NONE in --preprocess and samples as .npz",
            )
        )
    _check_integers(record)
    if record.head.kind == "auto":
        record, notice = _with_head(graph, record)
        notices.append(notice)
    return record, notices


def _check_integers(record: Preprocess) -> None:
    """InputError where the input takes integers and the record makes numbers of pixels that are none, or very few of them."""
    if record.dtype == "float32":
        return
    limits = np.iinfo(record.dtype)
    for mean, std in zip(record.mean, record.std, strict=True):
        low, high = (0 - mean) / std, (255 - mean) / std
        if low < limits.min - 0.5 or high > limits.max + 0.5 or high - low < FEWEST_LEVELS:
            usual, one, _ = IMAGE_TYPES[record.dtype]
            raise InputError(
                f"input {record.input} takes {record.dtype}, preprocessing (mean {mean:g}, std {std:g}) makes {low:g} to {high:g} of the pixels 0 to 255; "
                f"give mean: {usual:g} and std: {one:g}, the network scales them itself"
            )


def _without_image(graph: Graph, record: Preprocess) -> tuple[Preprocess, list[str]]:
    """The record of a network all of whose inputs are given as arrays."""
    if record.input:
        raise InputError(
            f"preprocessing: color NONE says that no input takes an image, input says that {record.input} does; leave out one of them"
        )
    if record.head.kind not in ("none", "auto"):
        raise InputError(
            f"preprocessing: a {record.head.kind} head needs an image, color NONE says that there is none; leave out one of them"
        )
    given = _described(graph)
    return replace(record, head=HeadSpec()), [
        f"no input takes an image ({given}): samples are .npz files with every input by name, or .npy files of a single one (docs/heads.md)"
    ]


def able_inputs(graph: Graph) -> list[str]:
    """Inputs that could take an image: four axes with three channels, or else with one; of real numbers, or else uint8 or int8."""
    maps = [t for t in graph.inputs if graph.tensors[t].dtype in IMAGE_TYPES and len(graph.tensors[t].shape) == 4]
    maps = [t for t in maps if graph.tensors[t].dtype == "float32"] or maps
    return [t for t in maps if graph.tensors[t].shape[1] == 3] or [t for t in maps if graph.tensors[t].shape[1] == 1]


def _described(graph: Graph) -> str:
    return ", ".join(f"{t} {graph.tensors[t].dtype} {list(graph.tensors[t].shape)}" for t in graph.inputs)


def image_input(graph: Graph, wanted: str) -> str:
    """The input that takes the image: the one the record names, the network's only one, or the only one of real numbers with three channels, or else with one."""
    if wanted:
        if wanted not in graph.inputs:
            raise InputError(
                f"preprocessing: the network has no input '{wanted}'; its inputs are {', '.join(graph.inputs)}"
            )
        return wanted
    if len(graph.inputs) == 1:
        return graph.inputs[0]
    able = able_inputs(graph)
    if len(able) == 1:
        return able[0]
    described = _described(graph)
    if not able:
        raise UnsupportedError(
            f"the network has the inputs {described}, expected one that takes an image, real numbers or 8-bit integers [1, 3 or 1, height, width]; "
            "export it with such an input, or give color: NONE in --preprocess and samples as .npz"
        )
    raise InputError(
        f"the network has the inputs {described}; say with `input: NAME` in --preprocess which of {', '.join(able)} takes the image"
    )


def _with_head(graph: Graph, record: Preprocess) -> tuple[Preprocess, str]:
    """The record with the head that the network's outputs show, or none; and a line for the user."""
    found = recognise(graph, record.input)
    if found.head is None:
        what = f": {found.hint}" if found.hint else "; declare one with head.kind in --preprocess (docs/heads.md)"
        return replace(record, head=HeadSpec()), f"no detection head recognised, outputs stay tensors{what}"
    names = record.class_names or list(found.class_names)
    notice = (
        f"detection head recognised: {found.head.kind}; another one: head.kind in --preprocess (`none` for tensors)"
    )
    notice += f"; {found.hint}" if found.hint else ""
    return replace(record, head=found.head, class_names=names), notice


def run(graph: Graph, ctx: Context) -> Graph:
    """The step."""
    ctx.preprocess, notices = complete(graph, ctx.options.preprocess, bool(ctx.options.shapes))
    ctx.note(notices)
    ctx.note(ctx.options.check_head(graph, ctx.preprocess))
    return graph
