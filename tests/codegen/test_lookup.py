"""A table of codes in descriptors: a bit, and 256 bytes after the records of requantisation."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from chai import overlay as overlays
from chai.codegen.encoding import encode
from chai.errors import DeviceError
from chai.overlay import Overlay
from chai.overlay.layout import Placed, blob_bytes
from chai.overlay.records import unpack
from chai.tasks.fields import Operands
from tests.codegen.equality import equal
from tests.lookups import KINDS, looked_up, random_task, with_lookups
from tests.tasks.common import joined

from .cases import decoded

WHERE = 1 << 20
RECORDS = {"conv": 1, "depthwise": 1, "filters": 1, "affine": 1, "average": 1}  # kinds that have some


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    return with_lookups(tmp_path_factory.mktemp("lookups"))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_decoded(overlay: Overlay, kind: str) -> None:
    for seed in range(20):
        plain, shapes, _ = random_task(kind, seed)
        task, _ = looked_up(plain, seed)
        assert task.lookup is not None
        sizes = [blob_bytes(shape, overlay.layout) for shape in shapes.values()]
        address = {n: Placed(at, size) for n, at, size in zip(shapes, accumulate(sizes, initial=0), sizes)}
        memory = Operands(overlay, address, shapes)
        descriptor, pieces = encode(task, memory, WHERE)
        values, constants = unpack(overlay.descriptor, descriptor), joined(pieces)
        without = joined(encode(plain, memory, WHERE)[1])
        assert constants == without + task.lookup.tobytes()
        records = int(np.prod(shapes["y"][1:2] if kind != "average" else shapes["y"][2:])) if kind in RECORDS else 0
        assert values["lookup"] == 1 and WHERE + len(constants) == values["table"] + 16 * records + 256
        decoded_task = decoded(descriptor, constants, overlay, address, shapes, WHERE, task)
        assert equal(decoded_task, task) and not equal(decoded_task, plain)
        assert not equal(decoded_task, replace(task, lookup=np.roll(task.lookup, 1)))
        again, more = encode(decoded_task, memory, WHERE)
        assert again == descriptor and joined(more) == constants
        with pytest.raises(DeviceError, match=r"lookup: 256 bytes at .* are outside the constants"):
            decoded(descriptor, constants[:-1], overlay, address, shapes, WHERE, task)


def test_an_overlay_without_the_unit_has_no_such_descriptor() -> None:
    task, shapes, _ = random_task("copy", 3)
    address = {name: Placed(i << 16, 1 << 16) for i, name in enumerate(shapes)}
    with pytest.raises(DeviceError, match="the overlay has no lookup copy"):
        encode(looked_up(task, 3)[0], Operands(_without(), address, shapes), WHERE)


def _without() -> Overlay:
    overlay = overlays.load()
    tasks = (s._replace(limits=tuple(x for x in s.limits if x[0] != "lookup")) for s in overlay.tasks)
    return replace(overlay, tasks=tuple(tasks))
