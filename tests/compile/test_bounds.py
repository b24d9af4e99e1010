"""Networks whose outputs have as many rows as the data decide: accepted by the verifier, with an upper bound in the .xmodel."""

from __future__ import annotations

import pytest

from npuforge.compile.xir.bounds import bounded

INPUTS = {"x": (25, 5), "s": (2, 25)}


@pytest.mark.parametrize("attrs, rows", [({}, 50), ({"max_output_boxes_per_class": 3}, 6)])
def test_rotated_suppression(build, compiled, attrs, rows):
    """At most every box of each class, or the limit; and what the kit's operators make of the rows: as many."""
    nodes = [
        ("RotatedNms", ["x", "s"], ["rows"], attrs, "nms", "npuforge"),
        ("Cast", ["rows"], ["floats"], {"to": 1}),
        ("AngleEncode", ["floats"], ["y"], {"axis": 1}, "encode", "npuforge"),
    ]
    graph = compiled(build(nodes, inputs=INPUTS, outputs=["rows", "y"], domains=["npuforge"]))
    assert graph.tensors["rows"].shape == (-1, 2) and graph.tensors["y"].shape == (-1, 4)
    found = bounded(graph)
    assert found.tensors["rows"].shape == (rows, 2) and found.tensors["y"].shape == (rows, 4)
