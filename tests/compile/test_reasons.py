"""What `inspect` says of nodes whose operator the NPU has, but not in this form: a reason that is true, and a remedy that is one."""

from __future__ import annotations

import numpy as np
import pytest

from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.remedies import remedy

CONV = {"kernel_shape": [1, 1]}
TWICE = np.array([1, 1, 2, 2], np.float32)
HALF = np.array([1, 1, 0.5, 0.5], np.float32)
ROI = np.array([0, 0, 0, 0, 1, 1, 0.5, 0.5], np.float32)
CROP = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
CASES = {
    "cubic": ([("Resize", ["t", "", "twice"], ["m"], {"mode": "cubic"})], "mode cubic", "nearest or linear"),
    "antialias": (
        [("Resize", ["t", "", "half"], ["m"], {"mode": "linear", "antialias": 1})],
        "antialias",
        "without antialias",
    ),
    "region": ([("Resize", ["t", "roi", "twice"], ["m"], CROP)], "a region of the map", "or a region"),
    "constant in Concat": ([("Concat", ["t", "map"], ["m"], {"axis": 1})], "'map' of this one is a constant", "input"),
    "computed weights": (
        [("Mul", ["k", "one"], ["kk"], {}), ("Conv", ["t", "kk"], ["m"], CONV)],
        "'kk' of this one is computed",
        "constants of the model",
    ),
}


@pytest.mark.parametrize(("nodes", "reason", "wanted"), CASES.values(), ids=CASES)
def test_reason_and_remedy(build, compiled, weights, nodes, reason, wanted):
    first, last = ("Conv", ["x", "w"], ["t"], CONV, "first"), ("Conv", ["m", "v"], ["y"], CONV, "last")
    channels = 8 if nodes[0][0] == "Concat" else 4
    constants = {"w": weights(4, 4, 1, 1), "v": weights(2, channels, 1, 1), "map": weights(1, 4, 8, 8)}
    constants |= {"twice": TWICE, "half": HALF, "roi": ROI, "one": np.float32(2)}
    inputs = {"x": (1, 4, 8, 8)} | ({"k": (4, 4, 1, 1)} if len(nodes) > 1 else {})
    graph = partition(compiled(build([first, *nodes, last], inputs=inputs, constants=constants, opset=18)))
    (node,) = [n for n in graph.nodes if "m" in n.outputs]
    assert node.device == "CPU" and reason in node.reason and wanted in remedy(node, graph)
    assert not remedy(node, graph).startswith("change the node so that")


def test_three_axes(build, compiled, weights):
    nodes = [("Conv", ["x", "w"], ["y"], {"kernel_shape": [3, 3, 3], "pads": [1] * 6})]
    graph = partition(compiled(build(nodes, shape=(1, 4, 3, 8, 8), constants={"w": weights(2, 4, 3, 3, 3)})))
    node = graph.nodes[0]
    assert node.device == "CPU" and "this one reads [1, 4, 3, 8, 8]" in node.reason and "two-dim" in remedy(node, graph)


@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_resize_of_named_axes_is_the_npus(build, same, weights, by):
    given = ["half", ""] if by == "scales" else ["", "sizes"]
    nodes = [
        ("Resize", ["x", "", *[t for t in given if t or by == "sizes"]], ["t"], {"mode": "linear", "axes": [3, 2]}),
        ("Conv", ["t", "w"], ["y"], CONV),
    ]
    constants = {"w": weights(2, 4, 1, 1), "half": np.array([0.5, 2], np.float32), "sizes": np.array([4, 16])}
    graph = same(build(nodes, constants=constants, opset=18), place=True)
    assert [p.device for p in graph.partitions] == ["NPU"]
    assert graph.nodes[0].attrs["sizes"] == [16, 4] and graph.nodes[0].attrs["scales"] == [2.0, 0.5]
