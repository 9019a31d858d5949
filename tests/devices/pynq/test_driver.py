"""What the driver looks at before it runs anything, and what it says when there is no board."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import devices, overlay as overlays
from chai.artifact.save import save
from chai.devices.pynq import array, finding, memory, program
from chai.errors import DeviceError
from tests.conftest import HANG
from tests.kernels.common import fork

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

from .hardware_files import handoff  # noqa: E402

IMAGE = np.random.default_rng(3).random((1, 1, 8, 8)).astype(np.float32)


def digits(board: Any, **options: Any) -> chai.Net:
    return chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGE, **options)


def refused(board: Any) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        digits(board).forward(IMAGE)
    return caught.value


def test_pynq_binds_the_driver_by_vlnv(board: Any) -> None:
    digits(board).forward(IMAGE)
    opened = program.device.board(board.overlay)
    assert isinstance(opened.bus, pynq.DefaultIP)
    assert type(opened.bus).bindto == [board.overlay.vlnv]
    assert board.downloads == 1
    digits(board).forward(IMAGE)  # a second network on the same bitstream
    assert board.downloads == 1


def test_one_chain_is_a_handful_of_writes(board: Any) -> None:
    net = digits(board)
    net.forward(IMAGE)
    board.counts = type(board.counts)()
    net.forward(IMAGE)
    assert dict(board.counts.writes) == {"CHAIN_LO": 1, "CHAIN_HI": 1, "COUNT": 1, "CONTROL": 1}
    once = dict.fromkeys(["DONE", "CYCLES", "CYCLES_HI"], 1)
    # it takes less time than the model says, and the first look comes shortly before that
    assert dict(board.counts.reads) == {"ID": 2, "BUILD": 2, "STATUS": 1, **once}
    assert board.counts.allocations == 0


@pytest.mark.parametrize("late", [0.0, 30e-6, 5e-3])
def test_status_is_not_polled_before_the_chain_can_be_done(board: Any, clock: Any, late: float) -> None:
    """The host sleeps for nine tenths of the modelled time, then looks more often than at its end."""
    net = digits(board)
    net.forward(IMAGE)
    (modelled,) = (one.segment.cycles / (board.overlay.clock_mhz * 1e6) for one in opened_programs(net))
    assert modelled > 100e-6
    looks: list[float] = []
    board.accelerator.takes = modelled + late
    board.accelerator.on_look = lambda: looks.append(clock.now)
    begin = clock.now
    net.forward(IMAGE)
    assert looks[0] - begin == pytest.approx(0.9 * modelled)
    pauses = np.diff(looks)
    assert pauses == pytest.approx([min(20e-6 * 2**i, 2e-3) for i in range(len(pauses))])
    assert modelled + late <= looks[-1] - begin <= modelled + late + 2e-3


def opened_programs(net: chai.Net) -> list[Any]:
    return [program for programs in net.offload._programs.values() for program in programs]


def test_both_words_of_an_address(board_of: Callable[..., Any]) -> None:
    board = board_of("ultra96")
    digits(board).forward(IMAGE)
    assert board.accelerator.values["CHAIN_HI"] == 8


def test_another_build(board: Any) -> None:
    board.accelerator.constants["BUILD"] ^= 1
    error = refused(board)
    assert f"the bitstream is of build {board.overlay.build ^ 1:08x}" in error.message
    assert "built from this overlay.json" in str(error.hint)


def test_no_accelerator_answers(board: Any) -> None:
    board.accelerator.constants["ID"] = 0xFFFFFFFF
    assert "register ID reads 0xffffffff, expected 0x43484149" in refused(board).message


def test_a_bitstream_of_something_else(board: Any) -> None:
    path = board.overlay.path.with_name(f"{board.overlay.name}.hwh")
    path.write_bytes(handoff(board.overlay, vlnv="someone:hls:filter:1.0"))
    message = refused(board).message
    assert "has no chai:accelerator:chai_array:1.0" in message and "someone:hls:filter:1.0" in message


def test_a_bitstream_without_its_handoff(board: Any) -> None:
    (board.overlay.path.with_name(f"{board.overlay.name}.hwh")).unlink()
    assert ".bit cannot be loaded" in refused(board).message
    assert ".hwh has to be in the same folder" in refused(board).message


def test_a_broken_bitstream(board: Any) -> None:
    board.overlay.path.with_name(f"{board.overlay.name}.bit").write_bytes(b"nothing")
    assert ".bit cannot be loaded" in refused(board).message


def test_no_bitstream(board: Any) -> None:
    board.overlay.path.with_name(f"{board.overlay.name}.bit").unlink()
    error = refused(board)
    assert error.message == f"no bitstream of overlay {board.overlay.name} is published yet"
    assert "put pynq-z2.bit and pynq-z2.hwh beside" in str(error.hint).replace(board.overlay.name, "pynq-z2")


def test_pynq_four_has_no_zynq_7000(board_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    board = board_of("pynq-z2")
    monkeypatch.setattr(pynq, "__version__", "4.0.0")
    error = refused(board)
    assert "pynq 4.0.0 no longer knows the Zynq-7000 of overlay pynq-z2" in error.message
    assert "3.1.2" in str(error.hint)


def test_another_process_has_the_board(board: Any, tmp_path: Path) -> None:
    code = "import pathlib, sys; from chai.devices.pynq import finding; finding.LOCKS = pathlib.Path(sys.argv[1])\n"
    code += "file = finding.claim(); print('has it', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline()
        error = refused(board)
        assert error.message == f"the board is in use by process {other.pid}"
        assert board.downloads == 0  # its bitstream is left alone
    digits(board).forward(IMAGE)  # the lock went with the process


def elsewhere(locks: Path) -> str:
    """What another process hears that asks for the board."""
    code = "import pathlib, sys; from chai.devices.pynq import finding; finding.LOCKS = pathlib.Path(sys.argv[1])\n"
    code += "from chai.errors import DeviceError\n"
    code += "try: finding.claim(); print('has it')\nexcept DeviceError as error: print(error.message)"
    done = subprocess.run([sys.executable, "-c", code, str(locks)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_last_network_that_is_closed_leaves_the_board(board: Any, tmp_path: Path) -> None:
    mine = f"the board is in use by process {os.getpid()}"
    with digits(board) as one:
        wanted = one.forward(IMAGE)
        other = digits(board)
        assert elsewhere(tmp_path) == mine
    assert elsewhere(tmp_path) == mine  # the other is still open
    outputs = other.forward(IMAGE)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    assert board.downloads == 1
    other.close()
    assert elsewhere(tmp_path) == "has it" and not board.memory.held
    with digits(board) as third:
        outputs = third.forward(IMAGE)
        assert elsewhere(tmp_path) == mine
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    assert board.downloads == 2


def test_a_network_that_is_gone_holds_no_board(board: Any, tmp_path: Path) -> None:
    import gc

    digits(board).forward(IMAGE)
    gc.collect()
    with digits(board) as net:
        net.forward(IMAGE)
    assert elsewhere(tmp_path) == "has it"
    assert board.downloads == 1


def test_what_a_network_forgets_keeps_the_board(board: Any, tmp_path: Path) -> None:
    """New formats are new Programs: no reason for another download."""
    net = digits(board)
    net.forward(IMAGE)
    net.calibrate(IMAGE / 2)
    net.forward(IMAGE)
    assert board.downloads == 1


def test_a_closed_compiled_network_leaves_the_board_and_stays_closed(board: Any, tmp_path: Path) -> None:
    path = tmp_path / "digits.chai"
    save(digits(board), path)
    with chai.Net(path, device="pynq", overlay=board.overlay.path) as net:
        wanted = net.forward(IMAGE)
    assert elsewhere(tmp_path) == "has it"
    with pytest.raises(chai.UsageError, match="is closed"):
        net.forward(IMAGE)
    assert elsewhere(tmp_path) == "has it"
    with chai.Net(path, device="pynq", overlay=board.overlay.path) as again:
        outputs = again.forward(IMAGE)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)


def test_a_failure_keeps_the_board(board: Any, tmp_path: Path) -> None:
    """It is the network's until it is closed, whether a pass went well or not."""
    net = digits(board)
    net.forward(IMAGE)
    board.accelerator.hangs_at = 2
    with pytest.raises(DeviceError, match="not done after"):
        net.forward(IMAGE)
    assert elsewhere(tmp_path) != "has it" and not board.memory.held
    net.close()
    assert elsewhere(tmp_path) == "has it"


def said_in_a_fork(run: Callable[[], object]) -> str:
    """Return what a function returns in a forked process, as text, or the error that it raises, with its hint."""
    read, write = os.pipe()
    child = fork()
    if not child:
        words = "it waits forever"
        try:
            signal.alarm(HANG)  # which ends it
            words = str(run())
        except DeviceError as error:
            words = f"{error.message} ({error.hint})"
        finally:
            os.write(write, words.encode())
            os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(write)
    said = os.read(read, 1000).decode()
    os.close(read)
    assert ended == 0
    return said


def test_a_fork_keeps_its_hands_off_the_board(board: Any) -> None:
    """It has the lock, the registers and the buffers of its parent."""
    net = digits(board)
    wanted = net.forward(IMAGE)
    said = said_in_a_fork(lambda: net.forward(IMAGE))
    assert said.startswith(f"process {os.getpid()} has the board, and this one was forked from it (start workers")
    outputs = net.forward(IMAGE)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)


def test_a_fork_while_a_thread_loads_the_bitstream(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is not there, and would never release what it holds."""
    inside, go_on = threading.Event(), threading.Event()
    download = array.download

    def slow(overlay: overlays.Overlay) -> Any:
        inside.set()
        assert go_on.wait(HANG)
        return download(overlay)

    monkeypatch.setattr(array, "download", slow)
    thread = threading.Thread(target=digits, args=(board,))
    thread.start()
    assert inside.wait(HANG)
    said = said_in_a_fork(lambda: digits(board))
    go_on.set()
    thread.join(HANG)
    assert said.startswith(f"the board is in use by process {os.getpid()} (")


def test_a_fork_that_closes_a_network_keeps_the_buffers(board: Any) -> None:
    """The kernel's handles of them are its parent's, too."""
    net = digits(board)
    wanted = net.forward(IMAGE)

    def closed() -> int:
        net.close()
        return len(board.memory.held)

    assert said_in_a_fork(closed) == str(len(board.memory.held)) == "4"
    outputs = net.forward(IMAGE)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)


def test_an_overlay_for_another_takes_the_board(board_of: Callable[..., Any]) -> None:
    first = board_of()
    one = digits(first)
    wanted = one.forward(IMAGE)
    second = board_of("kv260")
    digits(second).forward(IMAGE)
    assert [b.overlay.name for b in program._boards.values()] == ["kv260"]
    pynq.Device.active_device = first
    outputs = one.forward(IMAGE)
    assert first.downloads == 2 and all(np.array_equal(outputs[b], wanted[b]) for b in wanted)


# -- memory


@pytest.mark.parametrize(("total", "words"), [(64, "the pool of contiguous memory has 0.1 MB"), (0, "none is left")])
def test_ddr_that_does_not_suffice(
    board_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, words: str
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 512000 kB\nCmaTotal:  {total} kB\nCmaFree:  {total // 2} kB\n")
    monkeypatch.setattr(memory, "MEMORY", meminfo)
    board = board_of(memory=1 << 16)
    error = refused(board)
    assert "MB of contiguous memory are needed" in error.message and words in error.message
    assert "smaller batch" in str(error.hint) and "cma=" in str(error.hint)
    assert board.counts.allocations == 0 or total == 0  # a pool that is too small is not even asked
    assert not board.memory.held


def test_buffers_live_as_long_as_the_network(board: Any) -> None:
    import gc

    net = digits(board)
    assert not board.memory.held  # loading alone takes none
    wanted = net.forward(IMAGE)
    held = len(board.memory.held)
    assert held == 4  # descriptors and constants, input, output, work
    net.forward(IMAGE)
    assert len(board.memory.held) == held
    net.close()
    assert not board.memory.held
    again = digits(board)
    outputs = again.forward(IMAGE)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    del again
    gc.collect()
    assert not board.memory.held


# -- without a board


def test_words_where_there_is_no_board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(finding, "LOCKS", tmp_path)
    monkeypatch.delenv("XILINX_XRT", raising=False)
    monkeypatch.delenv("BOARD", raising=False)
    with pytest.raises(DeviceError, match="no bitstream of overlay pynq-z2 is published yet"):
        chai.Net("digits", device="pynq", calibrate=IMAGE).forward(IMAGE)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "overlay.json").write_bytes(overlays.load().path.read_bytes())
    (folder / "pynq-z2.bit").write_bytes(b"x")
    words = r"pynq finds no board here \(XILINX_XRT is not set\)"
    with warnings.catch_warnings(), pytest.raises(DeviceError, match=words) as caught:
        warnings.simplefilter("ignore")  # pynq's own, once per process
        chai.Net("digits", device="pynq", overlay=folder, calibrate=IMAGE).forward(IMAGE)
    assert "sudo -E" in str(caught.value.hint) and "BOARD is not set either" in str(caught.value.hint)


def test_registers_are_roots(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """pynq says so when it maps them, in words of its own."""

    def refuse() -> None:
        raise OSError("Root permissions required.")

    board.on_use = refuse
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    error = refused(board)
    assert "cannot be loaded: Root permissions required." in error.message
    assert "registers can be mapped by root alone; sudo drops what pynq needs: sudo -E" in str(error.hint)
    board.on_use = lambda: None
    digits(board).forward(IMAGE)


@pytest.mark.parametrize(
    ("xrt", "board_name", "words", "hint"),
    [
        (None, None, "(XILINX_XRT is not set)", "BOARD is not set either"),
        (None, "Pynq-Z2", "(XILINX_XRT is not set)", "login shell (sudo -i)"),
        ("/usr", "Pynq-Z2", "(No Devices Found)", "sudo -E"),
    ],
)
def test_what_sudo_drops(
    board: Any, monkeypatch: pytest.MonkeyPatch, xrt: str | None, board_name: str | None, words: str, hint: str
) -> None:
    for name, value in (("XILINX_XRT", xrt), ("BOARD", board_name)):
        monkeypatch.delenv(name, raising=False)
        value and monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    device = pynq.Device.active_device
    monkeypatch.setattr(type(pynq.Device), "active_device", property(_no_devices))
    error = refused(board)
    monkeypatch.undo()
    assert device is board and error.message == f"pynq finds no board here {words}"
    assert hint in str(error.hint) and ("BOARD is not set" in str(error.hint)) == (board_name is None)


def _no_devices(_: Any) -> None:
    raise RuntimeError("No Devices Found")


def test_status(monkeypatch: pytest.MonkeyPatch) -> None:
    device = devices.open("pynq")
    monkeypatch.delenv("XILINX_XRT", raising=False)
    assert device.status() == (False, "XILINX_XRT is not set")
    monkeypatch.setenv("XILINX_XRT", "/usr")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert device.status() == (False, "registers can be mapped by root alone")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert device.status() == (False, "no bitstream is here")
    monkeypatch.setattr(program, "bitstream", lambda o: o.path if o.name == "kv260" else None)
    assert device.status() == (True, "bitstreams of kv260")


def test_a_board_that_was_built_elsewhere_is_another_overlay(board: Any) -> None:
    digits(board).forward(IMAGE)
    other = replace(board.overlay, digest="0" * 64)
    with pytest.raises(DeviceError, match="is build 00000000"):
        program.device.board(other)
