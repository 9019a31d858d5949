"""A prototxt as a network of torch, its trained weights for a caffemodel, and the digits of scikit-learn, for training tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chai.parser.text import Block, parse, read_source

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise SystemExit("training needs: pip install torch scikit-learn pillow numpy") from error

HELD_BACK = 360

# --- the network, from its prototxt ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """One layer of a prototxt; ``params`` holds the fields of its ``*_param`` block, each a list."""

    name: str
    type: str
    bottoms: list[str]
    top: str
    params: dict[str, list[Any]]

    def number(self, field: str, default: int | None = None) -> int:
        """Return an integer parameter, or the default if the file does not set it."""
        return int(self.params[field][0]) if default is None or field in self.params else default


def as_dict(block: Block) -> dict[str, list[Any]]:
    """Return a message as {field: values in order}; a value is its text or a dict."""
    fields: dict[str, list[Any]] = {}
    for field in block.fields:
        value = as_dict(field.value) if isinstance(field.value, Block) else field.value.text
        fields.setdefault(field.name, []).append(value)
    return fields


def read_network(path: Path) -> tuple[str, list[Layer]]:
    """Return the name and layers of a prototxt."""
    net = as_dict(parse(read_source(path)))
    layers = []
    for layer in net["layer"]:
        params: dict[str, list[Any]] = next(
            (values[0] for field, values in layer.items() if field.endswith("_param")), {}
        )
        layers.append(Layer(layer["name"][0], layer["type"][0], layer.get("bottom", []), layer["top"][0], params))
    return net["name"][0], layers


class Convolution(nn.Module):
    """A convolution; one before a ReLU is trained with batch normalisation, which ``blobs`` folds away."""

    def __init__(self, inputs: int, layer: Layer, normalised: bool) -> None:
        super().__init__()
        sizes = layer.number("kernel_size"), layer.number("stride", 1), layer.number("pad", 0)
        self.conv = nn.Conv2d(inputs, layer.number("num_output"), *sizes, bias=not normalised)
        self.norm = nn.BatchNorm2d(layer.number("num_output")) if normalised else None

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) if self.norm is None else self.norm(self.conv(x))

    def blobs(self) -> list[Tensor]:
        """Return weights (M, C, kh, kw) and bias (M,) of the equivalent plain convolution for inference."""
        if self.norm is None:
            assert self.conv.bias is not None
            return [self.conv.weight, self.conv.bias]
        mean, variance = self.norm.get_buffer("running_mean"), self.norm.get_buffer("running_var")
        gain = self.norm.weight.double() / torch.sqrt(variance.double() + self.norm.eps)
        return [self.conv.weight * gain.view(-1, 1, 1, 1), self.norm.bias - mean * gain]


class Gemm(nn.Linear):
    """The custom layer "gemm": a fully connected layer over the flattened bottom."""

    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__(inputs, int(layer.params["float_args"][0]))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))

    def blobs(self) -> list[Tensor]:
        """Return weights (outputs, inputs) and bias (outputs,)."""
        return [self.weight, self.bias]


class Concat(nn.Module):
    def forward(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, dim=1)


class Network(nn.Module):
    """Runs the layers of a prototxt in order, as Caffe does. Softmax is part of the loss: such an output is scores."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        channels = {layer.top: int(layer.params["shape"][0]["dim"][1]) for layer in layers if layer.type == "Input"}
        (self.input,) = channels
        self.layers = [layer for layer in layers if layer.type not in ("Input", "Softmax")]
        self.modules_by_layer = nn.ModuleDict()
        rectified = {layer.bottoms[0] for layer in self.layers if layer.type == "ReLU"}
        for layer in self.layers:
            inputs = sum(channels[bottom] for bottom in layer.bottoms)
            self.modules_by_layer[layer.name] = self._module(layer, inputs, layer.top in rectified)
            channels[layer.top] = layer.number("num_output") if layer.type == "Convolution" else inputs

    @staticmethod
    def _module(layer: Layer, inputs: int, normalised: bool) -> nn.Module:
        match layer.type:
            case "Convolution":
                return Convolution(inputs, layer, normalised)
            case "ReLU":
                return nn.ReLU()
            case "Pooling":
                # Caffe rounds a pool's output size up and torch down; they agree if every window fits, as here.
                pool = nn.MaxPool2d if layer.params["pool"] == ["MAX"] else nn.AvgPool2d
                return pool(layer.number("kernel_size"), layer.number("stride", 1), layer.number("pad", 0))
            case "Concat":
                return Concat()
            case "Dropout":
                return nn.Dropout(float(layer.params["dropout_ratio"][0]))
            case "gemm":
                return Gemm(inputs, layer)
        raise SystemExit(f"layer {layer.name!r}: no module for type {layer.type!r}")

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return the tops that no layer reads, by name."""
        blobs = {self.input: x}
        for layer in self.layers:
            blobs[layer.top] = self.modules_by_layer[layer.name](*(blobs[bottom] for bottom in layer.bottoms))
        read = {bottom for layer in self.layers for bottom in layer.bottoms}
        return {name: blob for name, blob in blobs.items() if name not in read}

    def weights(self) -> Iterator[tuple[str, str, list[np.ndarray]]]:
        """Yield name, type and float32 blobs of every layer with weights, for a caffemodel."""
        for layer in self.layers:
            module = self.modules_by_layer[layer.name]
            if isinstance(module, Convolution | Gemm):
                yield layer.name, layer.type, [blob.detach().float().numpy() for blob in module.blobs()]


# --- digits ---------------------------------------------------------------------------------------------------------


def load_pixels() -> tuple[np.ndarray, np.ndarray]:
    """Return images, uint8 (1797, 8, 8), and labels (1797,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices to train on and the held-out indices, both sorted."""
    from sklearn.model_selection import train_test_split

    train, held_back = train_test_split(np.arange(len(labels)), test_size=HELD_BACK, stratify=labels, random_state=0)
    return np.sort(train), np.sort(held_back)
