"""Parts of unlike ranges: which outputs of an operator belong to which part, and the steps that every part keeps."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from networks import Builder, calibrated, images

from npuforge.quant import stages
from npuforge.quant.range_labels import FEWEST_STEPS, part_scales, range_labels

ranges = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=6)


@given(st.lists(ranges, min_size=1, max_size=4), st.floats(0.0, 1.0))
def test_every_part_keeps_its_steps_and_is_never_worse_off(parts: list[list[float]], alpha: float) -> None:
    width = np.concatenate([np.array(p) for p in parts])
    labels = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    low = -0.25 * width
    scale, common = (part_scales(low, low + width, alpha, which) for which in (labels, None))
    np.testing.assert_array_equal(common, stages.channel_scales(low, low + width, alpha))
    assert (scale <= common * (1 + 1e-9)).all()
    for part in range(len(parts)):
        own = width[labels == part]
        assert own.max() / scale[labels == part][own.argmax()] >= FEWEST_STEPS * (1 - 1e-9)


def test_labels_follow_the_channels() -> None:
    """Four channels to some hundred joined with three to 1; each reader's labels by hand."""
    b = Builder((1, 3, 6, 6))
    b.conv("wide", "input", 4, 1, spread=300.0)
    b.conv("small", "input", 3, 1, spread=0.1)
    b.add("Concat", "joined", ["wide", "small"], axis=1)
    b.add("ChannelGather", "moved", ["joined"], indices=[4, 0, -1, 5])
    b.conv("depthwise", "joined", 7, 3, group=7)
    b.conv("permuted", "joined", 7, 1)
    b.graph.constants["permuted.weight"][:] = np.roll(np.eye(7), 3, axis=0).reshape(7, 7, 1, 1)
    b.conv("dense", "joined", 5, 1)
    b.conv("last", "moved", 2, 1)
    graph = b.finish("last")
    labels = range_labels(graph, calibrated(graph, images(graph, 2)))
    expected = {
        "joined": [0, 0, 0, 0, 1, 1, 1],
        "moved": [1, 0, -1, 1],
        "depthwise": [0, 0, 0, 0, 1, 1, 1],
        "permuted": [1, 1, 1, 0, 0, 0, 0],
    }
    assert set(labels) == set(expected)  # the dense ones read both parts: one part again
    for tensor, numbers in expected.items():
        first = np.equal.outer(labels[tensor], labels[tensor])
        np.testing.assert_array_equal(first, np.equal.outer(numbers, numbers), tensor)
