"""Weights of a compiled network stay in its file: loading keeps none of them, a pass has those of a layer at a time."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import chai
from chai import overlay as overlays
from chai.artifact import container
from chai.artifact.save import save
from chai.codegen.compile import chain
from chai.codegen.memory_map import FIXED
from chai.errors import ParseError
from chai.kernels.native import library
from chai.offload.schedule import DeviceStep
from chai.overlay.weights import ByteSource, Packed, pack_weights, weight_bytes
from tests.leftovers import Leftovers
from tests.passes.common import network

WIDE = "convolution_param { num_output: 192 kernel_size: 3 pad: 1 }"
LAYERS = 8
WEIGHTS = LAYERS * 192 * 192 * 9  # bytes of codes
IMAGE = np.random.default_rng(0).standard_normal((2, 192, 5, 7)).astype(np.float32)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A network that is next to nothing but weights, and its outputs."""
    folder = tmp_path_factory.mktemp("wide")
    names = ["data", *(f"c{i}" for i in range(LAYERS))]
    text = "\n".join(f"{top} Convolution {bottom} -> {top} : {WIDE}" for bottom, top in pairwise(names))
    net = network(folder, text, IMAGE.shape, device="emulator", engine=dict.fromkeys(names[1:], "fpga"))
    net.calibrate(IMAGE)
    save(net, folder / "net.chai")
    return folder / "net.chai", net.forward(IMAGE)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Bytes that Python and numpy hold at the end, and at most, beyond those at the beginning."""
    sizes: list[int] = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield sizes
        sizes += [bytes - before for bytes in tracemalloc.get_traced_memory()]
    finally:
        tracemalloc.stop()


def test_loading_keeps_no_weights(wide: tuple[Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch) -> None:
    path, wanted = wide
    chai.Net(path)  # what it imports is no part of this
    monkeypatch.setattr("chai.artifact.load.keep_freed", lambda _: None)  # a block that is counted, but not used
    with counted() as bytes:
        net = chai.Net(path)
    assert path.stat().st_size > WEIGHTS
    held, peak = bytes
    assert held < WEIGHTS / 10 and peak < WEIGHTS / 2  # a layer at a time is looked at
    outputs = net.forward(IMAGE)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)


def test_a_pass_has_the_weights_of_one_layer(
    wide: tuple[Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "state", lambda: library.LibraryState((), "", None))  # in numpy
    net = chai.Net(wide[0])
    net.forward(IMAGE)
    with counted() as bytes:
        net.forward(IMAGE)
    floats = 4 * 192 * 192 * 9
    assert floats < bytes[1] < 2 * floats  # those of one layer, and its bytes, beside blobs and columns


def test_kernels_in_c_hold_the_weights_once(wide: tuple[Path, dict[str, np.ndarray]]) -> None:
    """In their own order, from the first pass until close."""
    if library.library() is None:
        pytest.skip(library.state().reason)
    net = chai.Net(wide[0])
    with counted() as bytes:
        net.forward(IMAGE)
        net.forward(IMAGE)
    assert WEIGHTS < bytes[0] < 1.2 * WEIGHTS
    assert bytes[1] < 1.4 * WEIGHTS  # those of a layer, as they are in the file, while they are packed
    with counted() as bytes:
        net = chai.Net(wide[0])
        net.forward(IMAGE)
        net.close()
    assert bytes[0] < WEIGHTS / 10


def test_weights_in_a_chain_are_those_of_the_file(wide: tuple[Path, dict[str, np.ndarray]]) -> None:
    """A board's program holds none either, and what it writes into DDR are the bytes of the file."""
    net = chai.Net(wide[0])
    (file_chain,) = (s.chain for s in net.schedule.steps if isinstance(s, DeviceStep))
    assert file_chain is not None
    memory = np.full(file_chain.sizes[FIXED], 0xA5, np.uint8)
    with counted() as bytes:
        file_chain.fix(dict.fromkeys(range(1, 6), 1 << 33), memory)
    assert bytes[1] < WEIGHTS / 10
    section = container.read(wide[0]).sections["constants.0"].mapped
    assert memory.tobytes()[-len(section) :] == section.tobytes()


def test_a_chain_that_is_made_anew_is_the_one_of_the_file(wide: tuple[Path, dict[str, np.ndarray]]) -> None:
    """For devices that look at each Task on its own; and still no weights are held."""
    net = chai.Net(wide[0])
    (step,) = (s for s in net.schedule.steps if isinstance(s, DeviceStep))
    with counted() as bytes:
        new_chain = chain(step.work(net.overlay, net.offload.shapes, net.schedule.views))
    assert bytes[1] < WEIGHTS / 10
    assert step.chain is not None and new_chain.descriptors == step.chain.descriptors
    assert (new_chain.regions, new_chain.wanted, new_chain.sizes) == (
        step.chain.regions,
        step.chain.wanted,
        step.chain.sizes,
    )
    images = [np.empty(c.sizes[FIXED], np.uint8) for c in (new_chain, step.chain)]
    for image, of in zip(images, (new_chain, step.chain)):
        of.fix(dict.fromkeys(range(1, 6), 1 << 33), image)
    assert np.array_equal(*images)


def test_packed_weights_are_the_array_that_was_packed() -> None:
    """For whoever asks numpy; and their bytes as they were."""
    array = overlays.load().array
    for shape, group in (((50, 37, 3, 2), 1), ((52, 20, 2, 3), 2), ((40, 1, 3, 2), 40), ((40, 1, 3, 2), 20)):
        weights = np.random.default_rng(3).integers(-127, 128, shape).astype(np.int8)
        data = pack_weights(weights, group, array)
        packed = Packed(ByteSource(bytes(7) + data), 7, shape, group, array)
        assert np.array_equal(packed, weights) and packed.size == weights.size and packed.bytes == len(data)
        assert packed.bytes == weight_bytes(shape, group, array)
        again = np.empty(packed.bytes, np.uint8)
        packed.read(again)
        assert again.tobytes() == data
        floats = np.asarray(packed, np.float32)
        assert floats.dtype == np.float32
        assert np.array_equal(floats, weights)


def test_a_file_that_is_cut_short_later_is_refused(wide: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    path = tmp_path / "net.chai"
    path.write_bytes(wide[0].read_bytes())
    net = chai.Net(path)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ParseError, match=r"net.chai.*was cut short while it was in use"):
        net.forward(IMAGE)


def test_a_file_is_closed_with_the_last_who_needs_it(wide: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    path = tmp_path / "net.chai"  # a file that no other test has open
    path.write_bytes(wide[0].read_bytes())
    left = Leftovers()
    net = chai.Net(path)
    assert left.files == [str(path)]
    del net
    gc.collect()
    assert left.files == []


def test_a_replaced_file_goes_on_as_it_was(wide: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    """``chai compile`` over a network in use: files are replaced, never written over."""
    path = tmp_path / "net.chai"
    path.write_bytes(wide[0].read_bytes())
    net = chai.Net(path)
    other = tmp_path / "other"
    other.write_bytes(b"x" * 9)
    os.replace(other, path)
    outputs = net.forward(IMAGE)
    assert all(np.array_equal(outputs[b], wide[1][b]) for b in wide[1])
