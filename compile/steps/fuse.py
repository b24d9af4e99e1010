"""The fuse step: ONNX nodes become the canonical operators of the NPU, activations become part of the node before them.

Order: movement chains → ChannelGather/SpaceToDepth; single nodes → canonical form; activations → fused, where the tensor before the activation has no
other reader and is no graph output, else a stand-alone Affine; a quantised model's own scales last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Graph
from npuforge.compile.steps.activations import ACTIVATION
from npuforge.compile.steps.canonical import canonicalise, stand_alone
from npuforge.compile.steps.moves import gather_channels
from npuforge.compile.steps.rewrite import Editor, extend_sources, merged_sources
from npuforge.compile.steps.take_over import take_over

TAKES_ACTIVATION = ("Conv", "ConvTranspose", "Add", "Sub", "Mul", "Affine")


def run(graph: Graph, ctx: Any = None) -> Graph:
    """Step interface of the pipeline."""
    return fuse(graph)


def fuse(graph: Graph) -> Graph:
    """Canonical operators with fused activations."""
    editor = Editor(graph)
    editor.prune()
    gather_channels(editor)
    canonicalise(editor)
    _merge_affines(editor)
    for node in editor.ordered():
        if node.op != ACTIVATION:
            continue
        before = editor.producer(node.inputs[0])
        if (
            before is not None
            and before.op in TAKES_ACTIVATION
            and before.activation.kind == "none"
            and editor.sole_user(node.inputs[0]) is node
            and not any(t in graph.constants for t in before.inputs[: 2 if before.op in ("Add", "Sub", "Mul") else 1])
        ):
            editor.remove(node)
            editor.update(before, outputs=list(node.outputs))
            before.activation = node.activation
            extend_sources(before, node)
        else:
            stand_alone(editor, node)
    take_over(editor)
    return editor.finish()


def _merge_affines(editor: Editor) -> None:
    """Affine → Affine is one: s2*(s1*x + b1) + b2."""
    for node in editor.ordered():
        before = editor.producer(node.inputs[0]) if node.op == "Affine" else None
        if before is None or before.op != "Affine" or editor.sole_user(node.inputs[0]) is not node:
            continue
        (s1, b1), (s2, b2) = ((np.asarray(n.attrs["scale"]), np.asarray(n.attrs["bias"])) for n in (before, node))
        node.attrs = {"scale": [float(v) for v in s2 * s1], "bias": [float(v) for v in s2 * b1 + b2]}
        source = before.inputs[0]
        editor.remove(before)
        editor.update(node, inputs=[source])
        node.sources = merged_sources(before, node)
