"""Train the digits detector and write its weights, and pictures of held-back digits with a file of their boxes.

    pip install torch scikit-learn pillow numpy                # not dependencies of chai
    pip install -e . && python tools/train_detector.py         # about ten minutes on one core, estimated

Reads ``prototxt/digits_detector.prototxt``, the only description of the network, and writes
``prototxt/digits_detector.caffemodel`` and ``prototxt/digits_scenes/``: JPEGs, and ``instances.json`` in COCO's form.

Data: digits of ``sklearn.datasets.load_digits`` on coloured backgrounds, by ``digit_scenes.py``. The digits are split as in
``train_digits.py``: the 360 that are held back are only in the shipped pictures and in those of tests.

The loss is that of detectors without anchors: for the cells around a box's centre its IoU and the distances to its sides, for
all cells the focal loss of ten sigmoids (Lin et al., arXiv:1708.02002). The same seed gives the same bytes on the same machine
with the same torch.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from digit_scenes import HEIGHT, WIDTH, BoxedDigit, coco, scene
from PIL import Image
from training import Network, load_pixels, read_network, split

from chai.util.paths import resource

try:
    import torch
    from torch import Tensor
    from torch.nn import functional
except ImportError as error:
    raise SystemExit("train_detector.py needs: pip install torch scikit-learn pillow numpy") from error

PROTOTXT = resource("prototxt", "digits_detector.prototxt")
WEIGHTS = resource("prototxt", "digits_detector.caffemodel")
SCENES = resource("prototxt", "digits_scenes")

SEED = 0
STRIDE = 8  # pixels of a cell
SHIPPED = 36  # pictures of held-back digits
PICTURES = 16_000  # to train on
EPOCHS = 20
BATCH = 64
LEARNING_RATE = 4e-3  # the peak of a one-cycle schedule
WEIGHT_DECAY = 0.05
AROUND = 1.0  # cells from a box's centre within which a cell's centre has the box
PRIOR = 0.02  # score of a class before training
FOCUS = 1.0  # of the focal loss
NEAR = 0.5  # share of the distances' own loss


# --- data -----------------------------------------------------------------------------------------------------------


def pictures(
    rng: np.random.Generator, count: int, digits: np.ndarray, labels: np.ndarray
) -> tuple[Tensor, Tensor, Tensor]:
    """Return pictures, uint8 (N, 1, HEIGHT, WIDTH), and what their cells are to say, see ``cells``."""
    images = np.empty((count, 1, HEIGHT, WIDTH), np.uint8)
    of_cells = []
    for image in images:
        pixels, boxes = scene(rng, digits, labels)
        image[...] = np.asarray(Image.fromarray(pixels).convert("L"))
        of_cells.append(cells(boxes))
    classes, distances = (torch.from_numpy(np.stack(each)) for each in zip(*of_cells))
    return torch.from_numpy(images), classes, distances


def cells(boxes: Sequence[BoxedDigit]) -> tuple[np.ndarray, np.ndarray]:
    """Return the digit of each cell (H, W), or -1, and the distances to its sides in cells, float32 (4, H, W)."""
    rows, columns = np.mgrid[: HEIGHT // STRIDE, : WIDTH // STRIDE] + 0.5
    classes = np.full(rows.shape, -1)
    distances = np.zeros((4, *rows.shape), np.float32)
    nearest = np.full(rows.shape, AROUND)
    for label, *corners in boxes:
        left, top, right, bottom = (corner / STRIDE for corner in corners)
        away = np.hypot(columns - (left + right) / 2, rows - (top + bottom) / 2)
        own = away < nearest
        nearest[own], classes[own] = away[own], label
        distances[:, own] = np.stack([columns - left, rows - top, right - columns, bottom - rows])[:, own]
    return classes, distances


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a batch as the network's input, half of the pictures as negatives."""
    images = images.float() / 255
    return torch.where(torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5, 1 - images, images)


# --- training -------------------------------------------------------------------------------------------------------


def loss(outputs: dict[str, Tensor], classes: Tensor, distances: Tensor) -> Tensor:
    """Return the loss of a batch, a mean over the cells that have a digit."""
    digit = classes >= 0
    count = digit.sum().clamp(min=1)
    logits = outputs["classes"]
    wanted = functional.one_hot(classes.clamp(min=0), logits.shape[1]).permute(0, 3, 1, 2) * digit[:, None]
    focus = (wanted - logits.sigmoid()).abs().pow(FOCUS)
    of_classes = (focus * functional.binary_cross_entropy_with_logits(logits, wanted.float(), reduction="none")).sum()
    own, true = (each.permute(1, 0, 2, 3)[:, digit] for each in (outputs["boxes"], distances))
    common = (torch.minimum(own, true)[:2] + torch.minimum(own, true)[2:]).clamp(min=0).prod(0)
    areas = sum((each[:2] + each[2:]).clamp(min=0).prod(0) for each in (own, true))
    of_boxes = (1 - common / (areas - common)).sum() + NEAR * functional.smooth_l1_loss(own, true, reduction="sum")
    return (of_classes + of_boxes) / count


def train(network: Network, images: Tensor, classes: Tensor, distances: Tensor) -> None:
    """Fit the network; every random choice comes from SEED."""
    generator = torch.Generator().manual_seed(SEED)
    optimiser = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * math.ceil(len(images) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps)
    network.train()
    for epoch in range(1, EPOCHS + 1):
        total = 0.0
        for batch in torch.randperm(len(images), generator=generator).split(BATCH):
            outputs = network(augment(images[batch], generator))
            cost = loss(outputs, classes[batch], distances[batch])
            optimiser.zero_grad()
            cost.backward()
            optimiser.step()
            schedule.step()
            total += cost.item() * len(batch)
        print(f"epoch {epoch:3d}  loss {total / len(images):.4f}", flush=True)
    network.eval()


# --- files ----------------------------------------------------------------------------------------------------------


def write_scenes(folder: Path, digits: np.ndarray, labels: np.ndarray) -> None:
    """Write pictures of digits as JPEGs, and their boxes."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("scene_*.jpg"):
        old.unlink()
    rng = np.random.default_rng(SEED + 1)
    names, boxes = [], []
    for number in range(SHIPPED):
        pixels, of_picture = scene(rng, digits, labels)
        names.append(f"scene_{number:02d}.jpg")
        boxes.append(of_picture)
        Image.fromarray(pixels).save(folder / names[-1], quality=85, optimize=True)
    (folder / "instances.json").write_text(json.dumps(coco(names, boxes), separators=(",", ":")) + "\n")


def main() -> None:
    """Train and write the files."""
    argparse.ArgumentParser(description="Train the digits detector and write its weights and pictures.").parse_args()

    from chai.parser.caffemodel import write_caffemodel

    torch.set_num_threads(1)  # sums split over threads would round differently from run to run
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)

    digits, labels = load_pixels()
    training, held_back = split(labels)
    name, layers = read_network(PROTOTXT)
    network = Network(layers)
    with torch.no_grad():
        network.modules_by_layer["classes"].conv.bias.fill_(math.log(PRIOR / (1 - PRIOR)))
    train(network, *pictures(np.random.default_rng(SEED), PICTURES, digits[training], labels[training]))
    write_caffemodel(WEIGHTS, name, network.weights())
    write_scenes(SCENES, digits[held_back], labels[held_back])
    print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes; {SHIPPED} pictures in {SCENES.name}/")


if __name__ == "__main__":
    main()
