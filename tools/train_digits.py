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
from pathlib import Path

import numpy as np
from PIL import Image
from training import Network, load_pixels, read_network, split

from chai.util.paths import resource

try:
    import torch
    from torch import Tensor
    from torch.nn import functional
except ImportError as error:
    raise SystemExit("train_digits.py needs: pip install torch scikit-learn pillow numpy") from error

PROTOTXT = resource("prototxt", "digits.prototxt")
WEIGHTS = resource("prototxt", "digits.caffemodel")
IMAGES = resource("prototxt", "digits_images")

SEED = 0
EPOCHS = 60
BATCH = 64
LEARNING_RATE = 3e-3  # the peak of a one-cycle schedule
WEIGHT_DECAY = 0.2  # strong and decoupled (AdamW), to keep the ranges of weights and blobs narrow for 8 bits
LABEL_SMOOTHING = 0.05
AUGMENTED = 0.8  # share of a batch that is augmented
SHIFT, ROTATION, ZOOM = 1.0, 10.0, 0.1  # at most: pixels, degrees, relative


# --- data and training ----------------------------------------------------------------------------------------------


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
            (scores,) = network(augment(images[batch], generator)).values()
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
        (scores,) = network(torch.from_numpy(as_input(pixels[held_back]))).values()
        report(scores.numpy(), labels[held_back])

    write_caffemodel(WEIGHTS, name, network.weights())
    write_images(IMAGES, pixels, labels, held_back)
    print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes; {len(held_back)} images in {IMAGES.name}/")


if __name__ == "__main__":
    main()
