"""The preprocessing step: the record the user declared, completed and checked against the network's input."""

from __future__ import annotations

from dataclasses import replace

from npuforge.compile.context import Context
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess


def complete(graph: Graph, record: Preprocess | None) -> tuple[Preprocess, list[str]]:
    """The record with the network's size and layout filled in, and notices about what was assumed. UsageError where they disagree."""
    name = graph.inputs[0]
    shape = graph.tensors[name].shape
    layout = graph.input_layout.get(name, "NCHW")
    if len(shape) != 4:
        return record or Preprocess(), []
    height, width = shape[2:]
    notices = []
    if record is None:
        record = Preprocess(width, height, std=[255.0] * 3, layout=layout)
        notices.append(
            f"no --preprocess given: assuming {width}x{height}, RGB, pixel/255, stretched; results are wrong if the model was trained otherwise"
        )
    record = replace(record, width=record.width or width, height=record.height or height, layout=layout)
    if (record.width, record.height) != (width, height):
        raise UsageError(
            f"preprocessing gives {record.width}x{record.height} images, input {name} takes {width}x{height}; "
            "correct width and height, or the model's size with --shape"
        )
    if shape[1] != len(record.mean):
        raise UsageError(f"input {name} has {shape[1]} channels, preprocessing gives {len(record.mean)}")
    return record, notices


def run(graph: Graph, ctx: Context) -> Graph:
    """The step."""
    ctx.preprocess, notices = complete(graph, ctx.options.preprocess)
    ctx.notices += notices
    return graph
