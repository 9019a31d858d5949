"""Faults, one at a time: each is told in words, the next pass in the same process is right to the bit, and buffers,
threads and file descriptors are back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import chai
from chai.codegen.chain import Chain
from chai.codegen.compile import chain
from chai.codegen.memory_map import OUTPUT
from chai.devices.pynq import program
from chai.env import env
from chai.errors import ChaiError, DeviceError
from chai.evaluate import selftest
from chai.offload.schedule import DeviceStep
from chai.tasks import Task
from tests.leftovers import Leftovers

pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

IMAGES = [np.random.default_rng(seed).random((1, 1, 8, 8)).astype(np.float32) for seed in range(4)]


@pytest.fixture(scope="module")
def wanted() -> list[dict[str, np.ndarray]]:
    net = chai.Net("digits", calibrate=IMAGES[0])
    return [net.forward(image) for image in IMAGES]


@pytest.fixture
def net(board: Any) -> chai.Net:
    digits_net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])
    digits_net.forward(IMAGES[0])
    return digits_net


def right(net: chai.Net, wanted: list[dict[str, np.ndarray]]) -> None:
    for image, values in zip(IMAGES, wanted):
        outputs = net.forward(image)
        assert all(np.array_equal(outputs[b], values[b]) for b in values)


def segment(net: chai.Net) -> DeviceStep:
    return next(s for s in net.schedule.steps if isinstance(s, DeviceStep))


def apart(net: chai.Net) -> list[Task]:
    """Return what each descriptor runs where each Task has a chain of its own."""
    step, overlay = segment(net), net.overlay
    assert overlay is not None
    work = step.work(overlay, net.offload.plan.device_shapes, net.schedule.views)
    chains = [
        chain(work._replace(tasks=(task,), reads=task.inputs, writes=(task.output,), chain=None)) for task in step.tasks
    ]
    return [task for each in chains for task in each.tasks]


def layer(net: chai.Net, tag: int) -> str:
    """Return the layer of a descriptor: a chain has an order of its own."""
    step, overlay = segment(net), net.overlay
    assert overlay is not None
    shapes, views = net.offload.plan.device_shapes, net.schedule.views
    return chain(step.work(overlay, shapes, views)).tasks[tag].origin[0]


@contextmanager
def nothing_is_lost(board: Any) -> Iterator[None]:
    """No more threads and files after than before, and no buffer left once the failure has been told."""
    left = Leftovers()
    yield
    gc.collect()
    assert not left
    assert not board.memory.held


def fails(net: chai.Net, board: Any, kind: type[BaseException] = DeviceError) -> Any:
    """The error of a pass. The buffers are gone while the error is still at hand, traceback and all."""
    with nothing_is_lost(board), pytest.raises(kind) as caught:
        net.forward(IMAGES[1])
    return caught.value


def reset(board: Any) -> bool:
    return bool(board.accelerator.values["COUNT"] == 0 and not board.accelerator._bit("busy"))


# -- the accelerator


@pytest.mark.parametrize("task", [0, 3, 13])
def test_it_never_ends(net: chai.Net, board: Any, clock: Any, wanted: Any, task: int) -> None:
    board.accelerator.hangs_at = task
    begin = clock.now
    error = fails(net, board)
    assert error.layer == layer(net, task)
    assert f"layer {layer(net, task)!r}" in error.message and " of 14 Tasks completed" in error.message
    assert 1 <= clock.now - begin < 2  # the model says far less than a millisecond: what is left is the patience
    assert reset(board)
    board.accelerator.hangs_at = None
    right(net, wanted)


@pytest.mark.parametrize("cause", [1, 2, 3, 4, 5, 6, 200])
def test_it_stops_with_a_word(net: chai.Net, board: Any, wanted: Any, cause: int) -> None:
    known = board.overlay.registers.errors
    with pytest.MonkeyPatch.context() as patch:
        said = {"STATUS": 4, "ERROR": 5 << 16 | cause}
        patch.setattr(board.accelerator, "_finish", lambda: board.accelerator.values.update(said))
        error = fails(net, board)
    assert error.layer == layer(net, 5)
    assert error.message.endswith(known[cause] if cause < len(known) else "cause 200")
    assert reset(board)
    right(net, wanted)


def test_a_memory_port_does_not_answer(net: chai.Net, board: Any, wanted: Any) -> None:
    """The accelerator may still write, a reset does not help, and it refuses to start: its buffers stay until a download."""
    cause = board.overlay.registers.errors.index("memory port m1 does not answer")
    buffers = set(board.memory.held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            board.accelerator, "_finish", lambda: board.accelerator.values.update(STATUS=5, ERROR=5 << 16 | cause)
        )
        board.accelerator.deaf = True
        with pytest.raises(DeviceError, match="memory port m1 does not answer") as caught:
            net.forward(IMAGES[1])
    assert caught.value.layer == layer(net, 5)
    assert "refuses every start until the bitstream is loaded again" in str(caught.value.hint)
    assert set(board.memory.held) == buffers and not program._boards
    right(net, wanted)
    assert board.downloads == 2


def test_it_ends_behind_the_deadline_and_writes_nothing_then(net: chai.Net, board: Any, wanted: Any) -> None:
    board.accelerator.takes = 1.1
    before = [b.device.copy() for b in board.memory.held.values()]
    assert "not done after 1.0 s" in fails(net, board).message
    assert reset(board) and before
    board.accelerator.takes = 50e-6
    right(net, wanted)


def test_it_ends_just_in_time(net: chai.Net, board: Any, clock: Any, wanted: Any) -> None:
    """The host slept through the deadline, but the chain was done: the last look counts."""
    board.accelerator.takes = 1.5
    board.accelerator.on_look = lambda: setattr(clock, "now", clock.now + 0.6)
    right(net, wanted)


def test_its_registers_are_reset_in_mid_chain(net: chai.Net, board: Any, wanted: Any) -> None:
    board.accelerator.takes = 0.1

    def power() -> None:
        board.accelerator.on_look = lambda: None
        board.accelerator.values.update(STATUS=0, DONE=0)

    board.accelerator.on_look = power
    assert "the accelerator stopped without a word" in fails(net, board).message
    board.accelerator.takes = 50e-6
    right(net, wanted)


@pytest.mark.parametrize(
    ("register", "words"), [("BUILD", "the bitstream is of build"), ("ID", "no accelerator of chai")]
)
def test_another_bitstream_or_none_was_loaded_meanwhile(
    net: chai.Net, board: Any, wanted: Any, register: str, words: str
) -> None:
    board.accelerator.values[register] ^= 1
    with pytest.raises(DeviceError, match=words):
        net.forward(IMAGES[1])
    assert not board.memory.held and not program._boards
    right(net, wanted)
    assert board.downloads == 2


@pytest.mark.parametrize("done", [2, 15])
def test_another_bitstream_is_loaded_in_mid_chain(net: chai.Net, board: Any, wanted: Any, done: int) -> None:
    """What stands in the place of STATUS there may say done, and in that of DONE as many as there are: no codes are taken
    for it, and nothing is written there."""

    def other() -> None:
        board.accelerator.on_look = lambda: None
        board.accelerator.values.update({**dict.fromkeys(board.accelerator.values, 2), "DONE": done})
        board.counts.writes.clear()

    board.accelerator.on_look = other
    with pytest.raises(DeviceError, match="no accelerator of chai answers: register ID reads 0x00000002"):
        net.forward(IMAGES[1])
    assert not board.counts.writes and not board.memory.held and not program._boards
    right(net, wanted)
    assert board.downloads == 2


def test_done_is_not_all_done(net: chai.Net, board: Any, wanted: Any) -> None:
    """Started anew by somebody else, say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(board.accelerator, "_finish", lambda: board.accelerator.values.update(STATUS=2, DONE=3))
        error = fails(net, board)
    assert "the accelerator stopped without a word, 3 of 14 Tasks completed" in error.message
    right(net, wanted)


def test_the_board_disappears(net: chai.Net, board: Any, wanted: Any) -> None:
    def gone() -> None:
        raise OSError("no such device")

    board.accelerator.on_look = lambda: setattr(board, "on_use", gone)
    with pytest.raises(
        DeviceError, match=r"the board does not answer: register .* \(OSError: no such device\)"
    ) as caught:
        net.forward(IMAGES[1])
    assert "load the network again" in str(caught.value.hint)
    assert not board.memory.held and not program._boards
    with pytest.raises(DeviceError, match=r"cannot be loaded: no such device|does not answer"):
        net.forward(IMAGES[1])
    board.on_use = board.accelerator.on_look = lambda: None
    right(net, wanted)


def test_a_reset_that_does_not_help(net: chai.Net, board: Any, wanted: Any) -> None:
    """It may still write: its buffers stay out of everybody's hands until a download has ended it."""
    board.accelerator.hangs_at, board.accelerator.deaf = 3, True
    buffers = set(board.memory.held)
    with pytest.raises(DeviceError, match="not done after"):
        net.forward(IMAGES[1])
    gc.collect()
    assert set(board.memory.held) == buffers and board.accelerator._bit("busy")
    board.accelerator.hangs_at = None
    right(net, wanted)
    assert board.downloads == 2 and len(board.memory.held) == len(buffers)
    net.close()
    assert not board.memory.held


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_at_each_use_of_the_board(net: chai.Net, board: Any, wanted: Any, error: type[BaseException]) -> None:
    """Until there is none left: buffers, registers, flushes; then all of them while the board is opened."""
    for again in (False, True):
        fired = True
        n = 0
        while fired and n < 300:
            n += 1 if n < 30 else 17  # opening is mostly the processor's clocks
            net.offload.close()
            if again:
                program.device.forget(program.device.board(board.overlay))
            left, fired = [n], False

            def use(left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    raise error("now")

            board.on_use = use
            failed = True
            try:
                net.forward(IMAGES[0])
                failed = False  # a clock that cannot be set is a warning
            except (error, DeviceError):
                pass  # until here its traceback may have a buffer in one of pynq's frames
            fired = left[0] <= 0
            gc.collect()
            assert not failed or (not board.memory.held and not board.accelerator._bit("busy"))
            board.on_use = lambda: None
            outputs = net.forward(IMAGES[1])
            assert all(np.array_equal(outputs[b], wanted[1][b]) for b in outputs)
        assert 15 < n < 300, "nothing failed, or there was no end"


def test_a_descriptor_of_another_version(net: chai.Net, board: Any, wanted: Any) -> None:
    values = board.accelerator.values
    fixed = board.memory.held[values["CHAIN_LO"] | values["CHAIN_HI"] << 32]
    fixed.device[2 * board.overlay.descriptor.bytes] ^= 3
    error = fails(net, board)
    assert "descriptor of another version" in error.message and error.layer == layer(net, 2)
    right(net, wanted)


@pytest.mark.parametrize("shift", [64, 1 << 24])
def test_an_address_beyond_its_buffer(net: chai.Net, board: Any, wanted: Any, shift: int) -> None:
    """By a word or by far: nothing is written there, and the layer has a name."""
    net.close()
    relocate = Chain.relocate
    with pytest.MonkeyPatch.context() as patch:
        shifted = lambda self, base, out: relocate(self, {**base, OUTPUT: base[OUTPUT] + shift}, out)  # noqa: E731
        patch.setattr(Chain, "relocate", shifted)
        other = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])
        with pytest.raises(DeviceError, match="the accelerator stopped: ") as caught:
            other.forward(IMAGES[1])
    assert caught.value.layer == layer(other, -1)
    assert not board.memory.held
    right(other, wanted)


def test_a_wrong_code_is_found_by_a_check(board: Any, wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()
    net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])
    right(net, wanted)
    count = [0]

    def flip(task: Task, out: np.ndarray) -> None:
        count[0] += 1
        if count[0] == 4:
            out[0, 5, 3, 2] ^= 1

    board.accelerator.corrupt = flip
    task = apart(net)[3]
    row = 3 + (task.rows[0] if task.rows else 0)  # of the blob
    with pytest.raises(DeviceError, match=rf"the device's code at \(0, 5, {row}, 2\)") as caught:
        net.forward(IMAGES[1])
    assert caught.value.layer == task.origin[0]
    board.accelerator.corrupt = None
    right(net, wanted)


# -- memory


def test_each_allocation_fails_in_turn(board: Any, wanted: Any) -> None:
    """Until none is left to fail: loading, the first pass, the pass after it."""
    told = 0
    for n in range(1, 50):
        net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])
        board.memory.fail_at = n
        try:
            net.forward(IMAGES[0])
        except ChaiError as error:
            assert "MB of contiguous memory are needed" in error.message
            assert not board.memory.held
            told += 1
        left, board.memory.fail_at = board.memory.fail_at, 0
        right(net, wanted)
        net.close()
        assert not board.memory.held
        if left > 0:
            break
    assert left > 0  # there was a pass in which nothing failed
    assert (n, told) == (5, 0)  # four buffers; a single failure of any is tried once more, and that succeeds


def test_memory_that_stays_exhausted(board: Any, wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = board.memory.allocate
    program.device.board(board.overlay)  # opened: its lock is a file
    for fitting in range(4):
        net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])

        def limited(size: int, fitting: int = fitting) -> Any:
            if len(board.memory.held) >= fitting:
                raise RuntimeError("BO allocation failed: Cannot allocate memory")
            return allocate(size)

        monkeypatch.setattr(board.memory, "allocate", limited)
        error = fails(net, board)
        assert "BO allocation failed" in error.message and "smaller batch" in str(error.hint)
        monkeypatch.setattr(board.memory, "allocate", allocate)
        right(net, wanted)
        net.close()


def test_a_network_that_nobody_holds_gives_way(board_of: Callable[..., Any], wanted: Any) -> None:
    board = board_of(memory=1 << 17)  # room for one
    for _ in range(6):
        net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])
        net.me = net  # type: ignore[attr-defined]  # a cycle: only the collector frees it
        right(net, wanted)
        del net


@pytest.mark.parametrize("kind", ["flush", "invalidate"])
def test_a_lost_flush_or_invalidate_is_seen(board: Any, wanted: Any, kind: str) -> None:
    """Each one that the driver does is needed: without it the codes are others, or the chain cannot be read."""
    regions = 4 if kind == "flush" else 1  # each is flushed: of what the accelerator writes, dirty lines come later
    for skipped in range(regions + 1):
        net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])
        board.lose = (kind, skipped)
        try:
            outputs = net.forward(IMAGES[1])
        except ChaiError:
            right_one = False
        else:
            right_one = all(np.array_equal(outputs[b], wanted[1][b]) for b in outputs)
        assert right_one == (skipped == regions)
        assert (board.lose[1] < 0) == (skipped < regions), "more or fewer are asked for"
        board.lose = None
        net.offload.close()
        right(net, wanted)


def test_half_of_a_flush_is_found_by_the_self_test_and_by_a_check(
    board: Any, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass alone does not see it: half of its input is the last one's, and the numbers are wrong."""
    net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])
    right(net, wanted)
    board.halves = True
    outputs = net.forward(IMAGES[1])
    assert any(not np.array_equal(outputs[b], wanted[1][b]) for b in outputs)
    net.close()
    assert [r.name for r in selftest.run(program.device, board.overlay) if not r.ok]
    board.halves = False
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()
    net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])
    right(net, wanted)
    board.halves = True
    with pytest.raises(DeviceError, match="the device's code at"):
        net.forward(IMAGES[1])


def test_parameters_that_change_give_the_old_buffers_back(net: chai.Net, board: Any) -> None:
    buffers = set(board.memory.held)
    net.params["classifier"][1][...] += 1
    assert buffers and not board.memory.held
    net.forward(IMAGES[0])
    assert len(board.memory.held) == len(buffers)


# -- the user


@pytest.mark.parametrize("look", [1, 2])
def test_ctrl_c(net: chai.Net, board: Any, wanted: Any, look: int) -> None:
    looks = [0]

    def interrupt() -> None:
        looks[0] += 1
        if looks[0] == look:
            raise KeyboardInterrupt

    board.accelerator.on_look = interrupt
    board.accelerator.takes = 5e-3  # longer than in the model, so that there are several looks
    fails(net, board, KeyboardInterrupt)
    assert reset(board)
    board.accelerator.on_look = lambda: None
    right(net, wanted)


def test_ctrl_c_twice(net: chai.Net, board: Any, wanted: Any) -> None:
    """The second comes before the reset: the chain may still write, so its buffers are kept until a download."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def first() -> None:
        board.on_use = interrupt
        interrupt()

    board.accelerator.on_look = first
    held = set(board.memory.held)
    with pytest.raises(KeyboardInterrupt):
        net.forward(IMAGES[1])
    assert set(board.memory.held) == held
    assert board.accelerator._bit("busy")
    board.accelerator.on_look = board.on_use = lambda: None
    right(net, wanted)
    assert board.downloads == 2
    net.close()
    assert not board.memory.held


def test_a_signals_handler_closes_the_network_while_it_runs(net: chai.Net, board: Any, wanted: Any) -> None:
    """The accelerator is reset before its buffers are given back."""

    def close() -> None:
        board.accelerator.on_look = lambda: None
        for user in [*program._boards[board.overlay.digest].users]:
            user.close()

    def released() -> None:
        assert not board.accelerator._bit("busy")

    board.accelerator.on_look, board.memory.on_release = close, released
    error = fails(net, board)
    assert error.message == "the network was closed while the board ran it"
    assert reset(board)
    right(net, wanted)


def test_a_stream_that_fails_in_the_middle(net: chai.Net, board: Any, wanted: Any) -> None:
    with nothing_is_lost(board):
        outputs = []
        with pytest.raises(DeviceError, match="bus error while reading"):
            for i, out in enumerate(net.stream(IMAGES * 2)):
                outputs.append(out)
                if i == 1:
                    board.accelerator.stop_at = (5, 7)
        assert 2 <= len(outputs) < 8
    board.accelerator.stop_at = None
    for out, values in zip(net.stream(IMAGES), wanted, strict=True):
        assert all(np.array_equal(out[b], values[b]) for b in values)


def test_many_threads_on_one_board(board: Any, wanted: Any) -> None:
    nets = [chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0]) for _ in range(3)]
    errors: list[BaseException] = []

    def work(net: chai.Net) -> None:
        try:
            right(net, wanted)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(net,)) for net in nets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
