"""List the files that a command reads although its command line does not name them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from ..errors import ChaiError
from ..images.files import FORMATS
from ..zoo.locate import files_of, locate

CODE = (".py", ".xml", ".cl", ".h")  # of custom layers
IMAGES = (*FORMATS, ".npy")


def files(args: argparse.Namespace, option: str, place: Path) -> Iterator[Path]:
    """Yield the files that are read because ``option`` has ``place``: those with a network, and those in a folder."""
    if option == "net":
        yield from _of_network(args.net, args.weights)
    if os.path.isdir(place):
        kinds = CODE if option == "custom" else IMAGES
        yield from (file for file in chain(place.glob("*"), place.glob("*/*")) if file.suffix.lower() in kinds)


def _of_network(net: str, weights: str | None) -> Iterator[Path]:
    """Yield its weights, its card and an ONNX model's external data; nothing for a network that cannot be read."""
    with suppress(ChaiError, OSError):
        path, stored = locate(net, weights, compiled=True, adjacent=True)
        yield from (path.with_suffix(".toml"), *([stored] if stored else []), *map(Path, files_of(path)))
