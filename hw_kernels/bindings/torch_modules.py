"""PyTorch modules over the kit's operators, named as torch's own are; each exports as one node of its domain. Needs `npuforge[torch]`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from npuforge.compile.ir.errors import UsageError
from npuforge.hw_kernels.bindings.torch_ops import run

Size = int | tuple[int, int]
Padding = int | tuple[int, int] | str


class Operator(nn.Module):
    """Any operator without parameters: `Operator("npuforge::Silu")`, `Operator("LeakyRelu", alpha=0.1)`."""

    def __init__(self, name: str, outputs: int = 1, **attributes: Any) -> None:
        super().__init__()
        self.name, self.outputs, self.attributes = name, outputs, attributes

    def forward(self, *inputs: Tensor) -> Any:
        """The operator's outputs."""
        return run(self.name, *inputs, outputs=self.outputs, **self.attributes)

    def extra_repr(self) -> str:
        """Name and attributes."""
        return ", ".join([self.name, *(f"{k}={v}" for k, v in self.attributes.items())])


def LeakyReLU(alpha: float = 0.01, mask: bool = False) -> Operator:
    """LeakyReLU with any slope; `mask`: the pair (y, mask)."""
    return Operator("npuforge::LeakyReluMask", 2, alpha=alpha) if mask else Operator("LeakyRelu", alpha=alpha)


def SiLU(polynomial: bool = False) -> Operator:
    """Exact, or by the polynomial of degree 5."""
    return Operator("npuforge::SiluPolynomial" if polynomial else "npuforge::Silu")


def ClipSigmoid() -> Operator:
    """Sigmoid clipped to [0.1, 0.9]."""
    return Operator("npuforge::ClipSigmoid")


def CustomGELU() -> Operator:
    """GELU in the tanh form, `com.example::CustomGELU`."""
    return Operator("com.example::CustomGELU")


class ModSigmoid(nn.Module):
    """sigmoid(x - threshold) with one learnt threshold per channel of N, C, H, W."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        y: Tensor = run("npuforge::ModSigmoid", x, self.threshold)
        return y


class _Convolution(nn.Module):
    operator = "Conv"

    def __init__(self, weight: tuple[int, ...], outputs: int, bias: bool, attributes: dict[str, Any]) -> None:
        super().__init__()
        bound = 1 / math.sqrt(math.prod(weight[1:]))
        self.weight = nn.Parameter(torch.empty(weight).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound)) if bias else None
        self.attributes = attributes

    def forward(self, x: Tensor) -> Tensor:
        """N, C, H, W in and out."""
        parameters = [self.weight] if self.bias is None else [self.weight, self.bias]
        y: Tensor = run(self.operator, x, *parameters, **self.attributes)
        return y


def _pair(what: str, value: Size) -> list[int]:
    """(height, width) from one number or two."""
    pair = [value, value] if isinstance(value, int) else list(value)
    if len(pair) != 2 or not all(isinstance(v, int) for v in pair):
        raise UsageError(f"{what} is {value!r}, expected one whole number or (height, width)")
    return pair


def _window(kernel: list[int], stride: Size, padding: Padding, dilation: Size, groups: int) -> dict[str, Any]:
    """Attributes of a convolution. "same" is torch's, for strides of 1: an odd pixel of padding goes to the bottom and the right."""
    strides, dilations = _pair("stride", stride), _pair("dilation", dilation)
    if isinstance(padding, str):
        if _named(padding) == "same" and strides != [1, 1]:
            raise UsageError(f"padding 'same' needs a stride of 1, found {stride}; give padding as numbers")
        total = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, dilations, strict=True)]
        before = [t // 2 for t in total]
        pads = before + [t - b for t, b in zip(total, before, strict=True)]
    else:
        pads = _pair("padding", padding) * 2
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": groups}


def _named(padding: str) -> str:
    if padding not in ("same", "valid"):
        raise UsageError(f"padding is '{padding}', expected numbers, 'same' or 'valid'")
    return padding


def _check_groups(inputs: int, outputs: int, groups: int) -> None:
    if groups < 1 or inputs % groups or outputs % groups:
        raise UsageError(f"groups is {groups}, expected a divisor of {inputs} input and {outputs} output channels")


class Conv2d(_Convolution):
    """As torch's, without padding modes; sizes are one number or (height, width), `padding` also "valid" or "same"."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Size,
        stride: Size = 1,
        padding: Padding = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        size = _pair("kernel", kernel)
        window = _window(size, stride, padding, dilation, groups)
        _check_groups(inputs, outputs, groups)
        super().__init__((outputs, inputs // groups, *size), outputs, bias, window)


class ConvTranspose2d(_Convolution):
    """As torch's; weight [inputs, outputs / groups, kH, kW]; sizes are one number or (height, width).

    `padding` "valid": none. "same": TensorFlow's and ONNX's SAME_UPPER, the map is `stride` times as large; what the window has beyond the stride is
    cut off, an odd pixel of it at the bottom and the right, and a window smaller than the stride leaves rows and columns that hold the bias there.
    """

    operator = "ConvTranspose"

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Size,
        stride: Size = 1,
        padding: Padding = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
    ) -> None:
        size, extra = _pair("kernel", kernel), _pair("output_padding", output_padding)
        _check_groups(inputs, outputs, groups)
        if isinstance(padding, str) and _named(padding) == "same":
            if any(extra):
                raise UsageError(
                    f"padding 'same' decides the size, found output_padding {output_padding}; leave it out, or give padding as numbers"
                )
            window = _window(size, stride, 0, dilation, groups)
            beyond = [d * (k - 1) + 1 - s for k, d, s in zip(size, window["dilations"], window["strides"], strict=True)]
            before = [max(b, 0) // 2 for b in beyond]
            window["pads"] = before + [max(b, 0) - a for a, b in zip(before, beyond, strict=True)]
            extra = [max(-b, 0) for b in beyond]
        else:
            window = _window(size, stride, 0 if padding == "valid" else padding, dilation, groups)
        super().__init__((inputs, outputs // groups, *size), outputs, bias, window | {"output_padding": extra})


class RotatedConv2d(_Convolution):
    """The kernel at `rotations` angles: rotations * outputs channels, orientation by orientation."""

    operator = "npuforge::RotatedConv"

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        rotations: int = 4,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        _check_groups(inputs, outputs, groups)
        window = _window([kernel] * 2, stride, padding, 1, groups) | {"rotations": rotations}
        super().__init__((outputs, inputs // groups, kernel, kernel), outputs, bias, window)


class BatchNorm2d(nn.Module):
    """As torch's: batch statistics in training, running ones in evaluation. `momentum` is torch's (share of the new value).

    The state is torch's, `num_batches_tracked` included, so that either loads the other's strictly; ValueError in training
    where a channel has only one value.
    """

    _version = 2  # torch's: a state of version 1 has no num_batches_tracked

    def __init__(self, channels: int, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.epsilon, self.momentum = epsilon, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.num_batches_tracked: Tensor
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, metadata: Any, *rest: Any) -> None:
        """A state saved before the count was kept leaves the count as it is."""
        if metadata.get("version", 1) < 2:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, metadata, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x. Running variance is torch's: of the sample, n / (n - 1) times the population's."""
        statistics = (self.running_mean.clone(), self.running_var.clone())  # the buffers change before backward
        if not self.training:
            y: Tensor = run("BatchNormalization", x, self.weight, self.bias, *statistics, epsilon=self.epsilon)
            return y
        count = x.numel() // x.shape[1]
        if count == 1:
            raise ValueError(
                f"BatchNorm2d in training needs more than 1 value per channel, the input has shape {list(x.shape)};"
                " give a larger batch or map, or call eval()"
            )
        attributes = {"epsilon": self.epsilon, "momentum": 1.0 - self.momentum, "training_mode": 1}
        y, mean, variance = run("BatchNormalization", x, self.weight, self.bias, *statistics, outputs=3, **attributes)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            old = (1.0 - self.momentum) * self.running_var
            self.running_mean.copy_(mean)
            self.running_var.copy_(old + (variance - old) * (count / (count - 1)))
        return y
