"""OpenCV's dnn on folders that ``RandomNet.write`` made; a process of its own, because it crashes on some networks.

python tests/reference/opencv.py FOLDER...     writes FOLDER/opencv.npz: the outputs that it can give
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np

Array = np.ndarray


def output(folder: Path, blob: str) -> Array:
    """One output. A network each, as of several outputs at once some are overwritten by other layers' numbers."""
    net = cv2.dnn.readNetFromCaffe(str(folder / "opencv.prototxt"), str(folder / "net.caffemodel"))
    net.enableFusion(False)  # a layer that is fused has no output to ask for
    with np.load(folder / "inputs.npz") as inputs:
        for name, values in inputs.items():
            net.setInput(values, name)
    array: Array = net.forward(f"end.{blob}")
    return array


def outputs(folder: Path) -> Iterator[tuple[str, Array]]:
    for blob in json.loads((folder / "outputs.json").read_text()):
        with suppress(cv2.error):
            yield blob, output(folder, blob)


def main() -> None:
    cv2.setNumThreads(1)
    for folder in map(Path, sys.argv[1:]):
        np.savez(folder / "opencv.npz", **dict(outputs(folder)))


if __name__ == "__main__":
    main()
