"""CHAI_PYNQ_WAIT=interrupt: pynq's Interrupt on a terminal that speaks as /dev/uioN does."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import chai
from chai.devices.pynq import program, waiting
from chai.env import env
from chai.errors import DeviceError, UsageError
from tests.conftest import HANG
from tests.leftovers import Leftovers

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

IMAGES = [np.random.default_rng(seed).random((1, 1, 8, 8)).astype(np.float32) for seed in range(4)]
LONG = 60e-3  # seconds of a chain; an interrupt counts as lost behind more


@pytest.fixture(autouse=True)
def _asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_PYNQ_WAIT", "interrupt")
    env.cache_clear()


@pytest.fixture(params=["edge", "level"])
def board(board_of: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    return board_of(interrupt=request.param)


@pytest.fixture(scope="module")
def wanted() -> list[dict[str, np.ndarray]]:
    net = chai.Net("digits", calibrate=IMAGES[0])
    return [net.forward(image) for image in IMAGES]


def digits(board: Any) -> chai.Net:
    return chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])


def right(net: chai.Net, wanted: list[dict[str, np.ndarray]]) -> None:
    for image, values in zip(IMAGES, wanted):
        outputs = net.forward(image)
        assert all(np.array_equal(outputs[b], values[b]) for b in values)


def test_a_chain_is_waited_for_without_a_look(board: Any, clock: Any, wanted: Any) -> None:
    net = digits(board)
    right(net, wanted)
    board.accelerator.takes = LONG
    board.counts = type(board.counts)()
    begin = clock.now
    net.forward(IMAGES[0])
    assert clock.now - begin == pytest.approx(LONG)
    # at the start and at the end; a level stands again when pynq has acknowledged it, and comes once too often
    assert board.counts.reads["STATUS"] in ((2,) if board.controller.edge else (2, 3))
    assert sum(board.counts.writes.values()) == 6
    assert board.counts.writes["IRQ"] == board.counts.writes["IRQ_ENABLE"] == 1
    right(net, wanted)


def test_a_closed_network_leaves_no_thread(board: Any, wanted: Any) -> None:
    left = Leftovers()
    with digits(board) as net:
        right(net, wanted)
        assert left.threads and left.files
    assert not left


def test_polling_is_what_happens_otherwise(
    board: Any, wanted: Any, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    """A design with an interrupt is no different then: pynq does not even open it."""
    monkeypatch.setenv("CHAI_PYNQ_WAIT", "poll")
    env.cache_clear()
    left = Leftovers()
    asyncio.run(asyncio.sleep(0))  # after which this thread has no loop, and pynq would not find one
    net = digits(board)
    board.accelerator.takes = LONG
    right(net, wanted)
    assert board.counts.reads["STATUS"] > 4 * 20 and board.counts.writes["IRQ_ENABLE"] == 0
    assert clock.slept > 4 * 20
    assert not left.threads and len(left.files) == 1  # the board's lock


def test_its_thread_and_its_file_are_given_back(board: Any, wanted: Any) -> None:
    left = Leftovers()
    net = digits(board)
    for _ in range(3):
        right(net, wanted)
        assert left.threads == ["chai-interrupt"] and left.files
        program.device.forget(program.device.board(board.overlay))
        assert not left
    assert board.downloads == 3


def test_pins_of_the_bitstream_before_are_not_used(board: Any, wanted: Any) -> None:
    """A notebook may have waited for an interrupt of the base overlay, in a loop that is closed now."""
    path = board.overlay.path.with_name(f"{board.overlay.name}.bit")
    loop = asyncio.new_event_loop()

    async def open_it() -> Any:
        pynq.Overlay(str(path), device=board)
        return pynq.Interrupt("accelerator/interrupt")

    loop.run_until_complete(open_it())
    assert pynq.interrupt._InterruptController._uio_devices
    loop.close()
    net = digits(board)
    board.accelerator.takes = LONG
    right(net, wanted)
    assert board.counts.reads["STATUS"] <= 3 * 4


def test_an_interrupt_that_is_lost(board: Any, clock: Any, wanted: Any) -> None:
    net = digits(board)
    right(net, wanted)
    board.accelerator.mute = True
    begin = clock.now
    right(net, wanted)
    assert clock.now - begin <= 4 * 1.01 * waiting.LOST
    board.accelerator.mute = False
    right(net, wanted)


def test_an_interrupt_too_many(board: Any, wanted: Any) -> None:
    net = digits(board)
    right(net, wanted)
    board.accelerator.takes = 0.3

    def twice() -> None:
        board.controller.pending = True

    board.accelerator.on_look = twice
    right(net, wanted)


def test_the_deadline_holds(board: Any, clock: Any, wanted: Any) -> None:
    net = digits(board)
    right(net, wanted)
    left = Leftovers()
    board.accelerator.hangs_at = 3
    begin = clock.now
    with pytest.raises(DeviceError, match=r"not done after 1\.0 s, \d+ of 14 Tasks completed"):
        net.forward(IMAGES[1])
    assert 1 <= clock.now - begin < 1 + 2 * waiting.LOST
    assert not left and not board.memory.held
    board.accelerator.hangs_at = None
    right(net, wanted)


def test_an_error_raises_the_interrupt(board: Any, clock: Any, wanted: Any) -> None:
    net = digits(board)
    right(net, wanted)
    board.accelerator.takes = LONG
    board.accelerator.stop_at = (4, 7)
    begin = clock.now
    with pytest.raises(DeviceError, match="address not aligned"):
        net.forward(IMAGES[1])
    assert clock.now - begin == pytest.approx(LONG)
    board.accelerator.stop_at = None
    right(net, wanted)


def test_ctrl_c_while_waiting(board: Any, wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = digits(board)
    right(net, wanted)
    left = Leftovers()
    with monkeypatch.context() as patch:

        def interrupted(*_: Any) -> bool:
            raise KeyboardInterrupt

        patch.setattr(waiting, "until", interrupted)
        with pytest.raises(KeyboardInterrupt):
            net.forward(IMAGES[1])
    assert not left and not board.memory.held and not board.accelerator._bit("busy")
    right(net, wanted)


def test_the_overlay_is_exchanged_while_waiting(board: Any, wanted: Any) -> None:
    """pynq calls its pin invalid then; the next pass opens the board anew."""
    net = digits(board)
    right(net, wanted)
    opened = program.device.board(board.overlay)
    opened._waiting._pin.parent = lambda: None
    board.accelerator.takes = LONG
    with pytest.raises(DeviceError, match=r"the board does not answer: .*Interrupt invalidated by Overlay change"):
        net.forward(IMAGES[1])
    assert not program._boards
    right(net, wanted)
    assert board.downloads == 2


# -- what is left where there is no interrupt


def polled(board: Any, wanted: Any, caplog: pytest.LogCaptureFixture) -> str:
    """The warning. Networks run all the same."""
    left = Leftovers()
    with caplog.at_level(logging.WARNING, "chai.pynq"):
        right(digits(board), wanted)
    assert not left.threads and len(left.files) == 1
    (record,) = [r for r in caplog.records if r.name == "chai.pynq"]
    assert record.message.startswith("CHAI_PYNQ_WAIT=interrupt: ")
    assert record.message.endswith("; STATUS is polled instead")
    return str(record.message)


def test_a_design_without_interrupt(
    board_of: Callable[..., Any], wanted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    board = board_of()
    assert "interrupt is not connected to an AXI interrupt controller" in polled(board, wanted, caplog)


def test_a_kernel_without_uio(
    board: Any, wanted: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynq.interrupt, "get_uio_irq", lambda _: None)
    message = polled(board, wanted, caplog)
    assert "accelerator/interrupt: Could not find UIO device" in message


def test_a_word_that_is_no_way_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_PYNQ_WAIT", "listen")
    env.cache_clear()
    with pytest.raises(UsageError, match="CHAI_PYNQ_WAIT is 'listen'; expected poll or interrupt"):
        env()


def test_a_process_ends_while_the_thread_waits() -> None:
    """The thread is a daemon, and pynq's files are closed while there is still a loop."""
    code = (
        "import asyncio, pynq.interrupt\n"
        "from chai.devices.pynq import waiting\n"
        "class Pin:\n"
        "    async def wait(self): await asyncio.sleep(1000)\n"
        "async def take(*_): return Pin()\n"
        "waiting._take = take\n"
        "looks = waiting.Interrupt('x').looks(5)\n"
        "next(looks), next(looks)\n"
        "print('done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=HANG, check=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
