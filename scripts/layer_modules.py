"""A layer table (`layer_table.py`) as PyTorch modules, and the training loop that the bundled networks share. Needs the `train` extra."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

from npuforge.scripts.layer_table import EPSILON, SLOPE, Layer

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "LeakyRelu": lambda x: F.leaky_relu(x, SLOPE),
    "Silu": F.silu,
}


class Block(nn.Module):
    """Convolution (or transposed convolution), batch normalisation, activation."""

    def __init__(self, layer: Layer, activation: str) -> None:
        super().__init__()
        shape = (layer.channels_in, layer.channels_out, layer.kernel, layer.stride)
        if layer.kind == "up":
            self.conv: nn.Module = nn.ConvTranspose2d(*shape, bias=False)
        else:
            self.conv = nn.Conv2d(*shape, layer.kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(layer.channels_out, eps=EPSILON)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.bn(self.conv(x)))


class Network(nn.Module):
    """The table as modules. Returns the maps named `outputs`. `biases`: of the heads, one value or one per channel; weights start small."""

    def __init__(
        self, layers: Sequence[Layer], outputs: Sequence[str], activation: str, biases: Mapping[str, float | np.ndarray]
    ) -> None:
        super().__init__()
        self.table, self.outputs = list(layers), list(outputs)
        self.layers = nn.ModuleDict()
        for layer in layers:
            if layer.kind in ("conv", "up"):
                self.layers[layer.name] = Block(layer, activation)
            elif layer.kind == "head":
                head = nn.Conv2d(layer.channels_in, layer.channels_out, 1)
                nn.init.normal_(head.weight, std=0.01)
                head.bias.data[:] = torch.as_tensor(biases[layer.name], dtype=torch.float32)
                self.layers[layer.name] = head

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        values = {"image": x}
        for layer in self.table:
            inputs = [values[name] for name in layer.inputs]
            if layer.kind == "add":
                result = inputs[0] + inputs[1]
            elif layer.kind == "concat":
                result = torch.cat(inputs, 1)
            elif layer.kind == "nearest":
                result = F.interpolate(inputs[0], scale_factor=2.0, mode="nearest")
            elif layer.kind == "pool":
                result = F.max_pool2d(inputs[0], layer.kernel, 1, layer.kernel // 2)
            else:
                result = self.layers[layer.name](inputs[0])
            values[layer.name] = result
        return [values[name] for name in self.outputs]


def weights_of(network: nn.Module) -> dict[str, np.ndarray]:
    """The state under the names `GraphBuilder.layers` expects."""
    names = {
        "conv.weight": "weight",
        "bn.weight": "gamma",
        "bn.bias": "beta",
        "bn.running_mean": "mean",
        "bn.running_var": "variance",
    }
    result = {}
    for key, value in network.state_dict().items():
        _, layer, rest = key.split(".", 2)
        if rest != "bn.num_batches_tracked":
            result[f"{layer}.{names.get(rest, rest)}"] = value.detach().numpy()
    return result


def to_input(images: np.ndarray) -> torch.Tensor:
    """uint8 [B, H, W, 3] as float32 [B, 3, H, W] in 0..1."""
    x = torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.float32) / 255
    return x.contiguous(memory_format=torch.channels_last)


def change_colours(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Brightness of the batch and each image's channels by up to 15 and 10 percent."""
    gain = torch.from_numpy(rng.uniform(0.8, 1.2, (len(x), 3, 1, 1)).astype(np.float32) ** 0.5)
    gain = gain * float(rng.uniform(0.85, 1.15))
    return (x * gain).clamp_(0, 1).contiguous(memory_format=torch.channels_last)


def write_whole(model: onnx.ModelProto, out: Path) -> None:
    """Writes the ONNX file, whole or not at all."""
    partial = out.with_suffix(".partial")
    partial.write_bytes(model.SerializeToString())
    partial.replace(out)


def fit(
    network: Network,
    count: int,
    loss_of: Callable[[np.ndarray], torch.Tensor],
    after_epoch: Callable[[nn.Module, int], str],
    rng: np.random.Generator,
    *,
    epochs: int,
    batch: int,
    rate: float,
) -> None:
    """AdamW with a one-cycle schedule that ends at `epochs`; the exponential moving average of the weights is what counts (it lags by some 1,000
    steps while batch normalisation's first variances leave it).

    loss_of: the loss of the training scenes with these indices. after_epoch: gets the average and the epoch (from 1), returns what to print.
    """
    begun = time.monotonic()
    decays = [p for p in network.parameters() if p.ndim > 1]
    plain = [p for p in network.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": decays, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}], lr=rate
    )
    steps = count // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, rate, epochs=epochs, steps_per_epoch=steps, pct_start=0.15
    )
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995), use_buffers=True
    )
    for epoch in range(1, epochs + 1):
        network.train()
        order, losses = rng.permutation(count), []
        for step in range(steps):
            loss = loss_of(order[step * batch : (step + 1) * batch])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimiser.step()
            schedule.step()
            average.update_parameters(network)
            losses.append(float(loss.detach()))
        line = f"epoch {epoch}/{epochs} loss {np.mean(losses):.3f} {time.monotonic() - begun:.0f} s"
        print(f"{line} {after_epoch(average.module, epoch)}".rstrip(), flush=True)


def training_options(description: str, out: str, epochs: int) -> argparse.Namespace:
    """The command line of a training script."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--scenes", type=int, default=2000, help="training scenes")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=1, help="of the training scenes, weights and order")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()
