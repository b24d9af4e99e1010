"""Weight rounding by second-order compensation, and bias correction.

The error of a convolution with rounding errors d is sum d*(x - mean) plus sum d*mean. The first part's power is d' C d with the covariance C of
the unfolded input: weights are rounded one by one, and the error of each is compensated by those still to come (as GPTQ does). The second part is
constant: the bias takes it up, together with the mean error that the layers before leave in the input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels.arithmetic import round_half_up
from npuforge.hw_kernels.windows import Window

DAMPING = 0.01  # share of the mean variance added to every input's own
LENGTH_MAX = 1536  # unfolded inputs of one group; longer ones are rounded to nearest
WEIGHT_MAX = 127


@dataclass
class MeanShift:
    """Mean per channel of a convolution's input over the sample images: in the float network, and in the integer graph up to here."""

    expected: np.ndarray  # float64 [I]
    found: np.ndarray  # float64 [I]


@dataclass
class InputCovariance:
    """Of a convolution's unfolded input (taps, channels of the group): sums over sampled positions, per group."""

    total: np.ndarray  # float64 [G, K]
    product: np.ndarray  # float64 [G, K, K]
    count: int = 0

    @staticmethod
    def of(node: Node, graph: Graph) -> InputCovariance | None:
        """Empty sums for `node`; None if it is no convolution or too long."""
        if node.op != "Conv":
            return None
        _, per_in, kernel_h, kernel_w = graph.constants[node.inputs[1]].shape
        length, group = per_in * kernel_h * kernel_w, int(node.attrs.get("group", 1))
        if length > LENGTH_MAX:
            return None
        return InputCovariance(np.zeros((group, length)), np.zeros((group, length, length)))

    def update(self, node: Node, graph: Graph, x: np.ndarray, out_shape: tuple[int, ...], positions: int) -> None:
        """Add about `positions` windows of one image x [1, C, H, W], spread over the map; border taps are 0."""
        window = Window.of(node)
        kernel_h, kernel_w = node.attrs["kernel_shape"]
        _, channels, h, w = x.shape
        size = out_shape[2] * out_shape[3]
        chosen = (np.arange(min(positions, size)) * (size / min(positions, size)) + self.count % 7).astype(
            np.int64
        ) % size
        rows, columns = chosen // out_shape[3], chosen % out_shape[3]
        patches = np.zeros((len(chosen), kernel_h * kernel_w, channels), np.float32)
        for tap in range(kernel_h * kernel_w):
            y = rows * window.strides[0] - window.pads[0] + (tap // kernel_w) * window.dilations[0]
            k = columns * window.strides[1] - window.pads[1] + (tap % kernel_w) * window.dilations[1]
            inside = np.nonzero((y >= 0) & (y < h) & (k >= 0) & (k < w))[0]
            patches[inside, tap] = x[0][:, y[inside], k[inside]].T
        groups, length = self.total.shape
        split = patches.reshape(len(chosen), kernel_h * kernel_w, groups, channels // groups)
        flat = np.ascontiguousarray(split.transpose(2, 0, 1, 3)).reshape(groups, len(chosen), length)
        self.total += flat.sum(axis=1, dtype=np.float64)
        self.product += np.matmul(flat.transpose(0, 2, 1), flat)
        self.count += len(chosen)

    def mean(self) -> np.ndarray:
        """[G, K]"""
        return self.total / max(self.count, 1)

    def covariance(self) -> np.ndarray:
        """[G, K, K]"""
        mean = self.mean()
        return self.product / max(self.count, 1) - mean[:, :, None] * mean[:, None, :]


def residual_variance(inputs: InputCovariance) -> np.ndarray:
    """What of each unfolded input's variance the inputs rounded after it cannot compensate: the power that rounding its weight costs. [G, K]"""
    result = np.empty_like(inputs.total)
    for g, covariance in enumerate(inputs.covariance()):
        variance = np.diag(covariance)
        damping = max(DAMPING * float(variance.mean()), 1e-30)
        order = np.argsort(-variance, kind="stable")
        try:  # rounding errors of the sums can leave a matrix that has no inverse: then nothing is compensated
            inverse = np.linalg.inv(covariance[np.ix_(order, order)] + damping * np.eye(len(order)))
            result[g, order] = 1.0 / np.diag(np.linalg.cholesky(inverse)) ** 2
        except np.linalg.LinAlgError:
            result[g] = variance
    return result


def _compensated(target: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Integers [O, K] near `target` (in units of a weight step) with little error power under `covariance` [K, K]."""
    variance = np.diag(covariance)
    damping = DAMPING * float(variance.mean())
    if not damping > 0.0:
        return np.clip(round_half_up(target), -WEIGHT_MAX, WEIGHT_MAX)
    order = np.argsort(-variance, kind="stable")
    matrix = covariance[np.ix_(order, order)] + damping * np.eye(len(order))
    try:
        # Rows of the upper factor of the inverse hold how the weights still to come compensate each error.
        factor = np.linalg.cholesky(np.linalg.inv(matrix)).T
    except np.linalg.LinAlgError:
        return np.clip(round_half_up(target), -WEIGHT_MAX, WEIGHT_MAX)
    rest = target[:, order].copy()
    result = np.empty_like(rest)
    for i in range(len(order)):
        result[:, i] = np.clip(round_half_up(rest[:, i]), -WEIGHT_MAX, WEIGHT_MAX)
        error = (rest[:, i] - result[:, i]) / factor[i, i]
        rest[:, i + 1 :] -= error[:, None] * factor[i, i + 1 :]
    unordered = np.empty_like(result)
    unordered[:, order] = result
    return unordered


def round_weights(
    scaled: np.ndarray, acc_scale: np.ndarray, scale_in: np.ndarray, inputs: InputCovariance
) -> np.ndarray:
    """int8 weights of `scaled` [O, kH, kW, I/G] (input scales absorbed) in steps of `acc_scale` [O]; `scale_in` [O, I/G] belongs to the inputs."""
    outputs = len(scaled)
    groups, length = inputs.total.shape
    per_out, taps = outputs // groups, scaled.shape[1] * scaled.shape[2]
    target = (scaled / acc_scale[:, None, None, None]).reshape(outputs, length)
    covariance = inputs.covariance()
    result = np.empty_like(target)
    for g in range(groups):
        rows = slice(g * per_out, (g + 1) * per_out)
        steps = np.tile(scale_in[g * per_out], taps)  # input in units of its own step
        result[rows] = _compensated(target[rows], covariance[g] / steps[:, None] / steps[None, :])
    return result.reshape(scaled.shape).astype(np.int8)


def tap_shares(node: Node, graph: Graph) -> np.ndarray:
    """Share of output pixels for which each tap [kH, kW] reads a pixel of the input, not border or stuffing.

    Taps are those of `ConvParams.weight`: a transposed convolution's are flipped.
    """
    window, kernel = Window.of(node), node.attrs["kernel_shape"]
    axes = []
    for axis in (0, 1):
        size, out = (graph.tensors[t].shape[2 + axis] for t in (node.inputs[0], node.outputs[0]))
        transposed = node.op == "ConvTranspose"
        walker, target = (size, out) if transposed else (out, size)  # each position of one map steps over the other
        first = np.arange(walker)[:, None] * window.strides[axis] - window.pads[axis]
        position = first + np.arange(kernel[axis])[None] * window.dilations[axis]
        share = ((position >= 0) & (position < target)).sum(axis=0) / out
        axes.append(share[::-1] if transposed else share)
    return np.outer(axes[0], axes[1])


def corrected_bias(
    bias: np.ndarray, weight: np.ndarray, rebuilt: np.ndarray, means: MeanShift, shares: np.ndarray
) -> np.ndarray:
    """Bias such that the mean of the accumulator is the float network's: `rebuilt` are the real values of the int8 weights [O, kH, kW, I/G]."""
    group = weight.shape[3]
    groups = len(means.expected) // group

    def mean_sum(values: np.ndarray, mean: np.ndarray) -> np.ndarray:
        per_input = (values * shares[None, :, :, None]).sum(axis=(1, 2))
        return np.asarray(
            (per_input * np.repeat(mean.reshape(groups, group), len(values) // groups, axis=0)).sum(axis=1)
        )

    return bias + mean_sum(weight, means.expected) - mean_sum(rebuilt, means.found)
