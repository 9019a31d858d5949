"""Formats from the photos that happen to come first: whichever these are, the answers stay as near to float."""

from __future__ import annotations

import numpy as np
import pytest

import chai
from chai.offload.headroom import IMAGES
from chai.runtime.batches import ahead
from tests.conftest import need_models

CHOICES, OTHERS, TOLERANCE = 10, 32, 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet_v1.1", "googlenet"])
def test_the_photos_that_come_first_decide_nothing(name: str) -> None:
    """Of 56 photos after the first 8, as many as 2 fewer keep float's class than with formats from 32 others of them.

    The first choice is the order of the files' names, as in ``chai run FOLDER``.
    """
    models = need_models()
    files = sorted((models / "calibration_images").glob("*.JPEG"))
    weights = models / name / "weights.caffemodel"
    exact, fixed = chai.Net(name, weights, "float", batch=8), chai.Net(name, weights, "emulator", batch=8)
    photos = exact.preprocess(files)

    def best(net: chai.Net, images: np.ndarray) -> np.ndarray:
        parts = [net.forward(images[i : i + 8])["prob"] for i in range(0, len(images), 8)]
        return np.concatenate(parts).reshape(len(images), -1).argmax(1)

    right = best(exact, photos)
    rng = np.random.default_rng(0)
    orders = [np.arange(len(files)), *(rng.permutation(len(files)) for _ in range(CHOICES - 1))]
    rows = []
    for order in orders:
        rest = order[IMAGES:]
        with chai.Net(name, weights, "emulator", batch=8) as net:
            batches = (photos[i : i + 1] for i in order)
            for _ in zip(range(1), ahead(net, batches, lambda x: {"data": x})):
                assert net.basis is not None and net.basis.images == IMAGES
            first = int((best(net, photos[rest]) == right[rest]).sum())
        fixed.calibrate(photos[i : i + 1] for i in rest[:OTHERS])
        rows.append((first, int((best(fixed, photos[rest]) == right[rest]).sum())))
    print(f"\n{name}: of {len(rest)}, formats from the first {IMAGES} and from {OTHERS} others: {rows}")
    assert all(abs(first - others) <= TOLERANCE for first, others in rows), rows
