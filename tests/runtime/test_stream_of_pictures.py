"""Pictures in a stream: decoded and converted by the thread that takes them, beside the layers of batches before them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai import ParseError, Pictures, PluginError, Preprocess, UsageError
from chai.kernels.native import library
from chai.runtime import execution
from tests.conftest import HANG
from tests.images.test_pictures import IMAGES, WAYS, naive
from tests.leftovers import Leftovers
from tests.passes.common import prototxt

RNG = np.random.default_rng(8)
SHAPE = (1, 3, 9, 11)
LINES = """c1 Convolution data -> c1 : convolution_param { num_output: 16 kernel_size: 3 }
    mine mine c1 -> m : user_defined_layer: true xcustom_param { top_dim: [1, 16, 7, 9] }
    c2 Convolution m -> c2 : convolution_param { num_output: 5 kernel_size: 2 }"""
PIXELS = RNG.integers(0, 256, (7, *SHAPE[2:], 3), dtype=np.uint8)
HOW = WAYS["BGR"]


@pytest.fixture
def left() -> Leftovers:
    """The threads of a test."""
    return Leftovers()


def halve(x: chai.xChangeLayer) -> None:
    x.out_ptrs[0][:] = x.in_ptrs[0] * np.float32(0.5)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that opens the network for a machine with so many processors."""

    def net(processors: int = 3, device: Any = "emulator", mine: Any = halve) -> chai.Net:
        monkeypatch.setattr(execution, "threads", lambda: processors)
        (tmp_path / "net.prototxt").write_text(prototxt(LINES, SHAPE))
        network = chai.Net(tmp_path / "net.prototxt", device=device, custom={"mine": mine})
        if network.overlay is not None:
            network.calibrate(naive(PIXELS[:1], HOW))
        return network

    return net


def batches(how: Preprocess = HOW) -> list[Pictures]:
    return [Pictures(one[None], how) for one in PIXELS]


def converting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that make codes of pictures; those that they have already cost nothing."""
    names, codes = list[str](), Pictures.codes

    def watched(self: Pictures, format: Any) -> np.ndarray:
        if self._coded is None:
            names.append(threading.current_thread().name)
        return codes(self, format)

    monkeypatch.setattr(Pictures, "codes", watched)
    return names


@pytest.mark.parametrize(
    ("device", "processors", "ahead"),
    [("emulator", 1, False), ("emulator", 2, False), ("emulator", 3, True), ("null", 1, False), ("null", 2, True)],
)
def test_where_codes_are_made(
    opened: Any, monkeypatch: pytest.MonkeyPatch, device: str, processors: int, ahead: bool
) -> None:
    """By the caller where it has a processor beside the lanes: the emulator's has one of its own."""
    net, names = opened(processors, device), converting(monkeypatch)
    for _ in net.stream(batches()):
        pass
    assert names == [threading.current_thread().name if ahead else "chai-host"] * len(PIXELS)
    assert net.partition.engine("c1") == "fpga"
    assert [step.type for step in net.perf.steps].count("Pack") == 2
    names.clear()
    net.forward(batches()[0])
    assert names == [threading.current_thread().name]


@pytest.mark.parametrize("processors", [1, 2, 3])
@pytest.mark.parametrize("device", ["emulator", "float"])
@pytest.mark.parametrize("how", [HOW, IMAGES["an image"]], ids=["numbers", "image"])
def test_a_stream_has_the_bits_of_forward_on_numbers(
    opened: Any, device: str, processors: int, how: Preprocess, left: Leftovers
) -> None:
    if how is not HOW:
        how = Preprocess(mean=RNG.uniform(0, 200, (3, 10, 12)).astype(np.float32))
    net = opened(processors, device)
    wanted = [net.forward(naive(one[None], how))["c2"] for one in PIXELS]
    if device == "emulator":
        counted = net.perf.converted, net.perf.saturated
    outputs = [out["c2"] for out in net.stream(batches(how))]
    assert len(outputs) == len(PIXELS)
    assert all(map(np.array_equal, outputs, wanted))
    if device == "emulator":
        assert (net.perf.converted, net.perf.saturated) == counted
        assert counted[0] > 0
    assert left.threads == []


def test_conversion_overlaps_with_layers_of_the_host(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are at work at once, or the barrier breaks; layers are in one lane and in order."""
    barrier, order, codes, last = threading.Barrier(2, timeout=HANG), list[float](), Pictures.codes, len(PIXELS) - 1
    meeting = False

    def mine(x: chai.xChangeLayer) -> None:
        if meeting:
            if len(order) < last:
                barrier.wait()
            order.append(float(x.in_ptrs[0].sum()))
            assert threading.current_thread().name == "chai-host"
        halve(x)

    conversions = list[int]()

    def watched(self: Pictures, format: Any) -> np.ndarray:
        if self._coded is None:
            conversions.append(1)
            if meeting and len(conversions) > 1:
                barrier.wait()
        return codes(self, format)

    net = opened(3, mine=mine)
    wanted = [net.forward(one)["c2"] for one in batches()]
    monkeypatch.setattr(Pictures, "codes", watched)
    meeting = True
    assert all(map(np.array_equal, (out["c2"] for out in net.stream(batches())), wanted))
    assert (len(order), len(conversions)) == (len(PIXELS), len(PIXELS))


def test_decoding_overlaps_with_layers_of_the_host(opened: Any, tmp_path: Path) -> None:
    """Also with one thread for kernels: the caller takes the next batches, whatever the lanes do."""
    barrier, meeting, layers = threading.Barrier(2, timeout=HANG), False, list[int]()

    def mine(x: chai.xChangeLayer) -> None:
        if meeting:
            layers.append(1)
            if len(layers) < len(PIXELS):
                barrier.wait()
        halve(x)

    net = opened(1, mine=mine)

    def decoded() -> Iterator[Pictures]:
        for i, one in enumerate(PIXELS):
            Image.fromarray(one).save(tmp_path / f"{i}.png")
            if i:
                barrier.wait()
            yield net.pictures([tmp_path / f"{i}.png"])

    meeting = True
    assert len(list(net.stream(decoded()))) == len(PIXELS)


@pytest.mark.parametrize("processors", [1, 3])
@pytest.mark.parametrize("device", ["emulator", "float"])
@pytest.mark.parametrize("bad", [0, 3])
def test_a_bad_picture_is_an_error_in_its_place(
    opened: Any, tmp_path: Path, device: str, processors: int, bad: int, left: Leftovers
) -> None:
    """One that cannot be read, or whose mean does not fit, after the answers of those before it."""
    net = opened(processors, device)
    files = []
    for i, one in enumerate(PIXELS):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(one).save(files[-1])
    files[bad].write_bytes(files[bad].read_bytes()[:60])
    seen = []
    with pytest.raises(ParseError, match=f"{bad}.png: this is no readable image"):
        seen.extend(net.stream(net.pictures([file]) for file in files))
    assert len(seen) == bad
    wrong = batches()
    wrong[bad] = Pictures(PIXELS[bad : bad + 1], Preprocess(mean=(1.0, 2.0)))
    seen = []
    with pytest.raises(UsageError, match="the mean is 2; expected 3 numbers"):
        seen.extend(net.stream(wrong))
    assert len(seen) == bad
    assert left.threads == []


@pytest.mark.parametrize("processors", [1, 3])
def test_the_error_of_an_earlier_batch_comes_first(opened: Any, processors: int, left: Leftovers) -> None:
    """A layer's of batch 2, though the picture of batch 3 is refused before the layer runs."""
    taken, calls = threading.Event(), list[int]()

    def mine(x: chai.xChangeLayer) -> None:
        calls.append(1)
        if len(calls) == 3:
            assert taken.wait(HANG)
            raise RuntimeError("broken")
        halve(x)

    net = opened(processors, mine=mine)
    calls.clear()

    def source() -> Iterator[Pictures]:
        yield from batches()[:3]
        taken.set()
        yield Pictures(PIXELS[3:4], Preprocess(mean=(1.0, 2.0)))

    seen = []
    with pytest.raises(PluginError, match="broken"):
        seen.extend(net.stream(source()))
    assert len(seen) == 2
    assert left.threads == []


# an interrupt may come between a file that is opened and its name: CPython closes it, and warns
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("where", ["decoding", "converting"])
def test_control_c_while_pictures_are_taken(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, left: Leftovers
) -> None:
    """Ends the stream at once; this thread no longer counts as one that computes."""
    net = opened(3)
    Image.fromarray(PIXELS[0]).save(tmp_path / "x.png")
    calls = list[int]()
    owner, name = (Preprocess, "pixels") if where == "decoding" else (Pictures, "codes")
    original = getattr(owner, name)

    def watched(self: Any, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return original(self, *arguments)

    monkeypatch.setattr(owner, name, watched)
    with pytest.raises(KeyboardInterrupt):
        list(net.stream(net.pictures([tmp_path / "x.png"]) for _ in range(9)))
    assert left.threads == []
    if (used := library.library()) is not None:
        assert used.calls.chai_computing(-1) == 0
    monkeypatch.undo()
    assert net.forward(net.pictures([tmp_path / "x.png"]))["c2"].any()


def test_a_stream_has_no_more_threads_for_it(opened: Any) -> None:
    """Host and device are its lanes, and their caller is the third that computes."""
    for processors in (1, 3, 8):
        net, names = opened(processors), set[str]()
        before = {thread.name for thread in threading.enumerate()}
        for _ in net.stream(batches()):
            names.update(thread.name for thread in threading.enumerate())
        assert names - before == {"chai-host", "chai-fpga"}


def test_layers_of_the_host_count_as_computing(opened: Any) -> None:
    """In C or in Python: kernels of other threads then leave them a processor."""
    if (used := library.library()) is None:
        pytest.skip(library.state().reason)
    counted = list[tuple[str, int]]()

    def mine(x: chai.xChangeLayer) -> None:
        counted.append((threading.current_thread().name, used.calls.chai_computing(-1)))
        halve(x)

    net = opened(3, mine=mine)
    counted.clear()
    assert len(list(net.stream(batches()))) == len(PIXELS)
    assert counted == [("chai-host", 1)] * len(PIXELS)
