"""Train the digits network and write its weights and test images.

    pip install torch scikit-learn pillow numpy                # not dependencies of chai
    pip install -e . && python tools/train_digits.py           # about half a minute on one core
    pip install "opencv-python-headless<5" && python tools/train_digits.py --verify

Reads ``prototxt/digits.prototxt``, the only description of the network (layers, names, sizes), and writes
``prototxt/digits.caffemodel`` and ``prototxt/digits_images/``.

Data: the 1797 images of ``sklearn.datasets.load_digits``, 8x8 with values 0..16, as 8-bit gray pixels
``round(value * 255 / 16)``; the network sees ``pixel / 255``. 360 images are held out, stratified by label:
``train_test_split(range(1797), test_size=360, stratify=labels, random_state=0)``. They are used neither for training nor
for its hyperparameters, which were chosen on a further split of the other 1437. The shipped images are the held-out ones;
the index in each file name records the split.

The same seed gives the same bytes on the same machine with the same torch; other processors may round differently.

``--verify`` does not train: it classifies the shipped images with the shipped weights in OpenCV's own Caffe importer.
"""

from __future__ import annotations

import argparse
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from chai.parser.text import Block, parse, read_source
from chai.util.paths import resource

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    raise SystemExit("train_digits.py needs: pip install torch scikit-learn pillow numpy") from error

PROTOTXT = resource("prototxt", "digits.prototxt")
WEIGHTS = resource("prototxt", "digits.caffemodel")
IMAGES = resource("prototxt", "digits_images")

SEED = 0
HELD_BACK = 360
EPOCHS = 60
BATCH = 64
LEARNING_RATE = 3e-3  # the peak of a one-cycle schedule
WEIGHT_DECAY = 0.2  # strong and decoupled (AdamW), to keep the ranges of weights and blobs narrow for 8 bits
LABEL_SMOOTHING = 0.05
AUGMENTED = 0.8  # share of a batch that is augmented
SHIFT, ROTATION, ZOOM = 1.0, 10.0, 0.1  # at most: pixels, degrees, relative


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
    """A convolution trained with batch normalisation, which ``blobs`` folds away."""

    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        outputs = layer.number("num_output")
        self.conv = nn.Conv2d(
            inputs, outputs, layer.number("kernel_size"), layer.number("stride", 1), layer.number("pad", 0), bias=False
        )
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))

    def blobs(self) -> list[Tensor]:
        """Return weights (M, C, kh, kw) and bias (M,) of the equivalent plain convolution for inference."""
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
    """Runs the layers of a prototxt in order, as Caffe does. Softmax is part of the loss: the output is scores."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        channels = {layer.top: int(layer.params["shape"][0]["dim"][1]) for layer in layers if layer.type == "Input"}
        (self.input,) = channels
        self.layers = [layer for layer in layers if layer.type not in ("Input", "Softmax")]
        self.modules_by_layer = nn.ModuleDict()
        for layer in self.layers:
            inputs = sum(channels[bottom] for bottom in layer.bottoms)
            self.modules_by_layer[layer.name] = self._module(layer, inputs)
            channels[layer.top] = layer.number("num_output") if layer.type == "Convolution" else inputs

    @staticmethod
    def _module(layer: Layer, inputs: int) -> nn.Module:
        match layer.type:
            case "Convolution":
                return Convolution(inputs, layer)
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

    def forward(self, x: Tensor) -> Tensor:
        blobs = {self.input: x}
        for layer in self.layers:
            blobs[layer.top] = self.modules_by_layer[layer.name](*(blobs[bottom] for bottom in layer.bottoms))
        return blobs[self.layers[-1].top]

    def weights(self) -> Iterator[tuple[str, str, list[np.ndarray]]]:
        """Yield name, type and float32 blobs of every layer with weights, for a caffemodel."""
        for layer in self.layers:
            module = self.modules_by_layer[layer.name]
            if isinstance(module, Convolution | Gemm):
                yield layer.name, layer.type, [blob.detach().float().numpy() for blob in module.blobs()]


# --- data and training ----------------------------------------------------------------------------------------------


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


def as_input(pixels: np.ndarray) -> np.ndarray:
    """Return the network's input, float32 (N, 1, 8, 8), as digits.toml describes it."""
    return pixels[:, None].astype(np.float32) * np.float32(1 / 255)


def augment(x: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, zoom and shift most images of a batch slightly."""
    turn, zoom, *shifts = (torch.rand(4, len(x), generator=generator) * 2 - 1).unbind()
    angle, size = turn * math.radians(ROTATION), 1 + zoom * ZOOM
    step = 2 / x.shape[-1]  # affine_grid uses units of half the width
    across = torch.stack([size * angle.cos(), -size * angle.sin(), shifts[0] * SHIFT * step], dim=1)
    down = torch.stack([size * angle.sin(), size * angle.cos(), shifts[1] * SHIFT * step], dim=1)
    grid = functional.affine_grid(torch.stack([across, down], dim=1), list(x.shape), align_corners=False)
    moved = functional.grid_sample(x, grid, align_corners=False)
    return torch.where(torch.rand(len(x), 1, 1, 1, generator=generator) < AUGMENTED, moved, x)


def train(network: Network, images: Tensor, labels: Tensor) -> None:
    """Fit the network; every random choice comes from SEED."""
    generator = torch.Generator().manual_seed(SEED)
    optimiser = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * math.ceil(len(images) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps)
    network.train()
    for epoch in range(1, EPOCHS + 1):
        total = 0.0
        for batch in torch.randperm(len(images), generator=generator).split(BATCH):
            scores = network(augment(images[batch], generator))
            loss = functional.cross_entropy(scores, labels[batch], label_smoothing=LABEL_SMOOTHING)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(batch)
        if epoch % 10 == 0:
            print(f"epoch {epoch:3d}  loss {total / len(images):.4f}", flush=True)
    network.eval()


# --- files ----------------------------------------------------------------------------------------------------------


def png_bytes(pixels: np.ndarray) -> bytes:
    """Return an 8-bit gray PNG, compressed with the best of zlib's strategies."""

    def encode(strategy: int) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", compress_level=9, compress_type=strategy)
        return file.getvalue()

    return min((encode(strategy) for strategy in range(5)), key=len)


def write_images(folder: Path, pixels: np.ndarray, labels: np.ndarray, indices: np.ndarray) -> None:
    """Write the images of ``indices`` as digit_INDEX_LABEL.png, and remove others that match this pattern."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("digit_*.png"):
        old.unlink()
    for index in indices:
        (folder / f"digit_{index:04d}_{labels[index]}.png").write_bytes(png_bytes(pixels[index]))


def report(scores: np.ndarray, labels: np.ndarray) -> None:
    """Print the top-1 accuracy."""
    right = int((scores.argmax(axis=1) == labels).sum())
    print(f"held-back accuracy: {right} of {len(labels)} = {right / len(labels):.2%}")


def verify() -> None:
    """Classify the shipped images with the shipped files in OpenCV, which shares no code with torch or chai."""
    try:
        import cv2
    except ImportError as error:
        raise SystemExit('--verify needs: pip install "opencv-python-headless<5"') from error

    # OpenCV has no "gemm"; InnerProduct is the same function with the same blobs.
    text, changed = re.subn(
        r'"gemm"(.*?)user_defined_layer: true\s+xcustom_param \{ float_args: (\d+)[^}]*\}',
        r'"InnerProduct"\1inner_product_param { num_output: \2 }',
        PROTOTXT.read_text(),
        flags=re.DOTALL,
    )
    if changed != 1:
        raise SystemExit(f"{PROTOTXT.name}: found {changed} layers of type gemm in the expected form, expected 1")
    net = cv2.dnn.readNetFromCaffe(
        np.frombuffer(text.encode(), np.uint8), np.frombuffer(WEIGHTS.read_bytes(), np.uint8)
    )
    paths = sorted(IMAGES.glob("digit_*.png"))
    net.setInput(as_input(np.stack([np.asarray(Image.open(path)) for path in paths])))
    report(net.forward(), np.array([int(path.stem.rpartition("_")[2]) for path in paths]))


def main() -> None:
    """Train and write the files, or verify the existing ones."""
    parser = argparse.ArgumentParser(description="Train the digits network and write its weights and test images.")
    parser.add_argument("--verify", action="store_true", help="only check the written files with OpenCV")
    if parser.parse_args().verify:
        verify()
        return

    from chai.parser.caffemodel import write_caffemodel

    torch.set_num_threads(1)  # sums split over threads would round differently from run to run
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)

    pixels, labels = load_pixels()
    training, held_back = split(labels)
    name, layers = read_network(PROTOTXT)
    network = Network(layers)
    train(network, torch.from_numpy(as_input(pixels[training])), torch.from_numpy(labels[training]))
    with torch.no_grad():
        report(network(torch.from_numpy(as_input(pixels[held_back]))).numpy(), labels[held_back])

    write_caffemodel(WEIGHTS, name, network.weights())
    write_images(IMAGES, pixels, labels, held_back)
    print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes; {len(held_back)} images in {IMAGES.name}/")


if __name__ == "__main__":
    main()
