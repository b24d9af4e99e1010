"""Random networks of up to a dozen layers, with branches, concats, slices, shuffles and residuals, on memories of several sizes: same bits as the
integer semantics at every trace point, in program order and in another order that the tokens allow."""

from __future__ import annotations

from typing import Any

import numpy as np
from backend import check, small_arch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from interpreter import Machine
from networks_int8 import Net
from test_generate_tokens import run_out_of_order

from npuforge.compile.ir.errors import ArchError
from npuforge.compile.steps.write_bin import to_bytes
from npuforge.hw_kernels.arch import load


class RandomNet:
    """Adds a layer of a drawn kind on drawn tensors; all maps have one of two sizes, so that branches can meet."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        r = self.random
        channels = int(r.choice([1, 3, 5, 16, 20, 33]))
        height, width = int(r.integers(4, 14)) * 2, int(r.integers(3, 12)) * 2
        self.net = Net((channels, height, width), seed)
        self.tensors = ["input"]
        for number in range(int(r.integers(2, 12))):
            self.step(f"n{number}")
        unread = [t for t in self.tensors[1:] if not any(t in n.inputs for n in self.net.graph.nodes)]
        extra = [t for t in self.tensors[1:] if r.random() < 0.1]
        self.outputs = list(dict.fromkeys(unread + extra))

    def pick(self, match: str | None = None) -> str:
        """A tensor, preferably a late one; of the same size as `match`."""
        candidates = [t for t in self.tensors if match is None or self.net.shape(t)[1:] == self.net.shape(match)[1:]]
        return candidates[-1 - min(int(self.random.exponential(1.5)), len(candidates) - 1)]

    def step(self, name: str) -> None:
        r, net = self.random, self.net
        x = self.pick()
        channels, height, width = net.shape(x)
        stage = str(r.choice(["pwl", "table"]))
        kinds = [
            "conv",
            "conv1",
            "depthwise",
            "group",
            "pool",
            "resize",
            "pair",
            "affine",
            "concat",
            "slice",
            "shuffle",
            "average",
        ]
        kind = str(r.choice([*kinds, "deconv", "gate", "split"]))
        outputs = int(r.choice([7, 16, 24, 32, 40, 64]))
        small = min(height, width) < 4
        if kind == "conv" and not small:
            stride = int(r.integers(1, 3))
            name = net.conv(name, x, outputs, (3, 3), (stride, stride), (1, 1, 1, 1), stage=stage)
        elif kind == "depthwise" and channels > 1:
            name = net.conv(name, x, channels, (3, 3), pads=(1, 1, 1, 1), group=channels, stage=stage)
        elif kind == "group" and channels % 2 == 0:
            name = net.conv(name, x, 2 * outputs, (1, 1), group=2)
        elif kind == "pool" and not small:
            name = net.pool("MaxPool", name, x, (5, 5), pads=[2, 2, 2, 2], strides=[1, 1])
        elif kind == "average" and not small:
            name = net.pool("AveragePool", name, x, (2, 2), strides=[2, 2])
        elif kind == "resize" and height < 30:
            attrs = {"mode": str(r.choice(["nearest", "linear"])), "coordinate_transformation_mode": "half_pixel"}
            name = net.add("Resize", name, [x], sizes=[2 * height, 2 * width], scales=[2.0, 2.0], **attrs)
        elif kind == "pair":
            same = [t for t in self.tensors if net.shape(t) == net.shape(x)]
            name = net.pair(
                str(r.choice(["Add", "Sub", "Mul"])), name, x, str(r.choice(same)), str(r.choice(["direct", stage]))
            )
        elif kind == "gate":
            self.tensors.append(net.pool("AveragePool", f"{name}s", x, (height, width)))
            gate = net.conv(f"{name}g", f"{name}s", channels, (1, 1), stage="table")
            name = net.pair("Mul", name, x, gate)
        elif kind == "affine":
            name = net.affine(name, x, stage)
        elif kind == "concat":
            name = net.add("Concat", name, [x, *(self.pick(x) for _ in range(int(r.integers(1, 3))))], axis=1)
        elif kind == "slice" and channels > 2:
            first = int(r.integers(0, channels - 1))
            name = net.add(
                "ChannelGather", name, [x], indices=list(range(first, int(r.integers(first + 1, channels + 1))))
            )
        elif kind == "shuffle":
            indices = [int(i) for i in r.permutation(channels)]
            if r.random() < 0.2:
                indices[0] = -1
            name = net.add("ChannelGather", name, [x], indices=indices)
        elif kind == "split" and channels % 4 == 0:  # a shuffle unit
            half = channels // 2
            order = [i // 2 + half * (i % 2) for i in range(channels)]
            left = net.conv(f"{name}l", x, half, (1, 1))
            right = net.conv(f"{name}r", x, half, (1, 1))
            joined = net.add("Concat", f"{name}j", [left, right], axis=1)
            mixed = net.add("ChannelGather", f"{name}m", [joined], indices=order)
            first = net.add("ChannelGather", f"{name}a", [mixed], indices=list(range(half)))
            name = net.add("ChannelGather", f"{name}b", [mixed], indices=list(range(half, channels)))
            self.tensors.append(first)
        elif kind == "deconv" and height < 30:
            name = net.conv(name, x, outputs, (4, 4), (2, 2), (1, 1, 1, 1), transpose=True, stage=stage)
        else:
            name = net.conv(name, x, outputs, (1, 1), stage=stage)
        self.tensors.append(name)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)
@given(st.integers(0, 10**9), st.sampled_from(["nf-b4096", "nf-b1024", 131072, 65536]))
def test_random_network(seed: int, which: Any) -> None:
    drawn = RandomNet(seed)
    arch = small_arch(which) if isinstance(which, int) else load(which)
    try:
        compiled = check(drawn.net, *drawn.outputs, arch=arch)
    except ArchError as error:
        assert isinstance(which, int), error  # the kit's own configurations take all of these
        return
    assert compiled.memory is not None and compiled.memory.size <= 1.2 * compiled.memory.bound
    ordered, other = Machine(to_bytes(compiled)), Machine(to_bytes(compiled))
    feeds = drawn.net.feeds()
    for machine in (ordered, other):
        for name, value in feeds.items():
            machine.write_tensor(name, value[0])
    ordered.run(ordered.meta["partitions"][0])
    run_out_of_order(other, seed % 100)
    for name in drawn.outputs:
        np.testing.assert_array_equal(ordered.read_tensor(name), other.read_tensor(name))


def test_drawn_networks_have_everything() -> None:
    """The generator above really makes what it promises."""
    seen: set[str] = set()
    for seed in range(60):
        seen |= {n.op for n in RandomNet(seed).net.graph.nodes}
    expected_ops = {
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "AveragePool",
        "Add",
        "Sub",
        "Mul",
        "Affine",
        "Resize",
        "Concat",
        "ChannelGather",
    }
    assert seen == expected_ops
