"""Conversions in the board's buffers, and two sets of them in a stream: under a cache that writes back when it likes."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.devices.pynq import program
from chai.errors import ChaiError, DeviceError
from tests.passes.common import CONV, network
from tests.runtime.test_direct import PLAIN, SEVERAL, WIDE, check, conversions
from tests.runtime.test_interrupts import Injection, Timeout, check_unharmed, data

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

from .test_faults import nothing_is_lost  # noqa: E402
from .test_vta import marked  # noqa: E402

OVERLAYS = ["pynq-z2", "vta-z7020"] if pynq.__version__ < "4" else ["ultra96"]
PORTS = (
    [("pynq-z2", False), ("vta-z7020", False), ("vta-z7020", True)] if pynq.__version__ < "4" else [("ultra96", False)]
)
SHAPE = (2, 3, 5, 7)


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def nets(board: Any, folder: Path, lines: str = PLAIN, **options: Any) -> tuple[chai.Net, chai.Net]:
    """The network on the emulator and on the board."""
    options |= {"overlay": board.overlay.path}
    return network(folder, lines, device="emulator", **options), network(folder, lines, device="pynq", **options)


def calibrated(board: Any, folder: Path, lines: str = PLAIN) -> tuple[chai.Net, chai.Net]:
    both = nets(board, folder, lines)
    for net in both:
        net.calibrate(image(0))
    return both


def sets(net: chai.Net) -> list[Any]:
    return [used for programs in net.offload._programs.values() for program in programs for used in program._sets]


def starts(board: Any) -> list[int]:
    """The addresses of programs that are started from now on."""
    addresses: list[int] = []
    write = board._write_one

    def seen(address: int, value: int) -> None:
        inside = board.offset(address)
        if inside is not None and board.accelerator.offsets[inside] in ("CHAIN_LO", "fetch.address"):
            addresses.append(value)
        write(address, value)

    board._write_one = seen
    return addresses


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("lines", [SEVERAL, WIDE], ids=["several", "unfolded"])
def test_every_bit_is_the_emulators(board_of: Callable[..., Any], tmp_path: Path, name: str, lines: str) -> None:
    board = board_of(name)
    hosts = {layer: "host" for layer in "cpq" if f"{layer} Power" in lines}  # else these are tables of codes
    both = nets(board, tmp_path, lines, engine=hosts)
    check(both)
    direct, others = conversions(both[1])
    assert others == ({"Unpack a"} if lines == SEVERAL else set()) and direct
    assert sets(both[1]) and not any(used.lease for used in sets(both[1]))


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "coherent"), PORTS)
def test_many_frames(board_of: Callable[..., Any], tmp_path: Path, name: str, coherent: bool, count: int) -> None:
    """Lines of both sets are written back, dropped and fetched at the worst moments; each answer is the emulator's."""
    if name == "vta-z7020":
        board = marked(board_of(name, coherent=coherent), coherent)
    else:
        board = board_of(name, exact=False)
    one, other = calibrated(board, tmp_path)
    addresses = starts(board)
    different = [image(seed) for seed in range(count // 4)]
    frames, wanted = different * 4, [one.forward(frame)["p"] for frame in different] * 4
    for out, right in zip(other.stream(frames), wanted, strict=True):
        assert np.array_equal(out["p"], right)
    assert (board.counts.flushed == 0) == (board.counts.invalidated == 0) == coherent
    assert len(set(addresses[-count:])) == 2 and len(addresses) >= count
    other.close()
    gc.collect()
    assert not board.memory.held


@pytest.mark.parametrize("name", OVERLAYS)
def test_without_room_for_a_second_set(
    board_of: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """There is one: host and device take turns, and the answers are the same."""
    board = board_of(name)
    one, other = calibrated(board, tmp_path)
    other.forward(image(0))
    frames = [image(seed) for seed in range(9)]
    wanted = [one.forward(frame)["p"] for frame in frames]
    for fitting in range(4):  # buffers more; a second set has three
        allocate, room = board.memory.allocate, len(board.memory.held) + fitting

        def limited(size: int, room: int = room, allocate: Any = allocate) -> Any:
            if len(board.memory.held) >= room:
                raise RuntimeError("BO allocation failed: Cannot allocate memory")
            return allocate(size)

        board.memory.allocate = limited
        addresses = starts(board)
        caplog.clear()
        with caplog.at_level(logging.INFO, "chai.devices"):
            for out, right in zip(other.stream(frames), wanted, strict=True):
                assert np.array_equal(out["p"], right)
        board.memory.allocate = allocate
        (message,) = [record.message for record in caplog.records if record.name == "chai.devices"]
        if fitting < 3:
            assert message.startswith("host and device do not overlap, with 1 of 2 sets of blobs: ")
            assert "of contiguous memory are needed" in message and "BO allocation failed" in message
        else:
            assert "MB of the device's memory, " in message and " before the second set of blobs" in message
        assert len(set(addresses)) == (2 if fitting == 3 else 1) and len(board.memory.held) == room - fitting % 3


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_answer_that_is_not_a_number_keeps_nothing(board_of: Callable[..., Any], tmp_path: Path, name: str) -> None:
    """The error is at hand, and the memory is given back when the network is closed."""
    board = board_of(name)
    one, other = calibrated(board, tmp_path)
    broken = image(1)
    broken[1, 2, 4, 6] = np.nan
    with pytest.raises(ChaiError, match="NaN") as caught:
        other.forward(broken)
    assert np.array_equal(other.forward(image(2))["p"], one.forward(image(2))["p"])
    other.close()
    assert not board.memory.held
    assert caught.value.layer == "data"


@pytest.fixture
def alarm() -> Iterator[None]:
    """A handler of SIGALRM that raises Timeout."""

    def handler(number: int, frame: Any) -> None:
        raise Timeout

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize(
    ("what", "apart"), [("forward", 29), ("stream", 41), pytest.param("forward", 7, marks=pytest.mark.slow)]
)
def test_an_exception_at_any_moment_loses_no_set(
    board_of: Callable[..., Any], tmp_path: Path, alarm: None, what: str, apart: int
) -> None:
    """In the middle of a write, between a flush and a start, before something is given back: the next answers are right."""
    board = board_of(exact=False)
    lines = f"a Convolution data -> a : {CONV}\nc2 Power a -> c2 : power_param {{ shift: 1 }}"
    options: dict[str, Any] = {"shape": (2, 3, 9, 7), "overlay": board.overlay.path, "calibrate": data(99)}
    one, other = (network(tmp_path, lines, device=device, **options) for device in ("emulator", "pynq"))
    frames = [data(seed) for seed in range(4)]
    call: Any = (lambda: list(other.stream(frames))) if what == "stream" else (lambda: other.forward(frames[1]))
    wanted = one.forward(frames[1])["c2"]
    call()
    moment, injection = 0, Injection(0)
    while injection.now >= moment:
        moment += apart
        injection = Injection(moment)
        with suppress(Timeout, DeviceError):
            injection.run(call)
        assert not any(used.lease for used in sets(other)), moment
        assert not board.accelerator._bit("busy"), moment
        check_unharmed(other, wanted)
    assert injection.now > 200
    other.close()
    gc.collect()
    assert not board.memory.held


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_at_each_use_of_the_board_in_a_stream(
    board_of: Callable[..., Any], tmp_path: Path, error: type[BaseException]
) -> None:
    """Buffers are gone, those of all batches in flight too, and the next stream is right."""
    board = board_of(exact=False)
    one, other = calibrated(board, tmp_path)
    frames = [image(seed) for seed in range(6)]
    wanted = [one.forward(frame)["p"] for frame in frames]
    assert len(list(other.stream(frames))) == 6
    n, fired = 0, True
    while fired:
        n += 5
        left = [n]

        def use(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise error("now")

        board.on_use = use
        failed = True
        try:
            list(other.stream(frames))
            failed = False
        except (error, DeviceError):
            pass  # until here its traceback may have a buffer in one of pynq's frames
        fired = left[0] <= 0
        gc.collect()
        assert not failed or (not board.memory.held and not board.accelerator._bit("busy"))
        board.on_use = lambda: None
        for out, right in zip(other.stream(frames), wanted, strict=True):
            assert np.array_equal(out["p"], right)
    assert n > 50


def test_a_chain_that_fails_in_a_stream_takes_no_other_batchs_answer(
    board_of: Callable[..., Any], tmp_path: Path
) -> None:
    board = board_of(exact=False)
    one, other = calibrated(board, tmp_path)
    frames = [image(seed) for seed in range(8)]
    wanted = [one.forward(frame)["p"] for frame in frames]
    for bad in range(6):
        addresses = starts(board)

        def look(bad: int = bad, addresses: list[int] = addresses) -> None:
            board.accelerator.stop_at = (5, 0) if len(addresses) > bad else None

        board.accelerator.on_look = look
        seen: list[np.ndarray] = []
        with nothing_is_lost(board), pytest.raises(DeviceError, match="bus error while reading"):
            seen.extend(out["p"] for out in other.stream(frames))
        board.accelerator.on_look = lambda: None
        board.accelerator.stop_at = None
        assert len(seen) == bad and all(np.array_equal(a, b) for a, b in zip(seen, wanted))
        for out, right in zip(other.stream(frames), wanted, strict=True):
            assert np.array_equal(out["p"], right)
        other.offload.close()
    assert program._boards


def test_a_reset_that_does_not_help_in_a_stream(board_of: Callable[..., Any], tmp_path: Path) -> None:
    """The accelerator may still write to the set that it runs, and to what both have in common, until a download."""
    board = board_of(exact=False)
    one, other = calibrated(board, tmp_path)
    frames = [image(seed) for seed in range(6)]
    wanted = [one.forward(frame)["p"] for frame in frames]
    assert len(list(other.stream(frames))) == 6
    both = len(board.memory.held)
    board.accelerator.hangs_at, board.accelerator.deaf = 0, True
    addresses = starts(board)
    with pytest.raises(DeviceError, match="not done after"):
        list(other.stream(frames[:1]))  # a later batch, whose lane may not know yet, would open the board again
    gc.collect()
    assert board.accelerator._bit("busy")
    chain = board.memory.around(addresses[-1]).address
    assert chain in board.memory.held and both - 3 <= len(board.memory.held) < both + 1
    board.accelerator.hangs_at = None
    for out, right in zip(other.stream(frames), wanted, strict=True):
        assert np.array_equal(out["p"], right)
    assert board.downloads == 2 and len(board.memory.held) == both
    other.close()
    assert not board.memory.held


def test_what_a_later_batch_claims_before_the_stream_stops_is_released(
    board_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lane may not know yet that the one before it has failed, and took the memory with it."""
    board = board_of(exact=False)
    _, other = calibrated(board, tmp_path)
    frames = [image(seed) for seed in range(6)]
    assert len(list(other.stream(frames))) == 6
    (used_program,) = (one for listed in other.offload._programs.values() for one in listed)
    failed = used_program.failed

    def then_claimed() -> None:
        failed()
        lease = [object()]
        assert used_program.claim(lease) is not None
        lease.clear()
        assert board.memory.held

    monkeypatch.setattr(used_program, "failed", then_claimed)
    board.accelerator.stop_at = (5, 0)
    with pytest.raises(DeviceError, match="bus error while reading"):
        list(other.stream(frames))
    assert not board.memory.held
