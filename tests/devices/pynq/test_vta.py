"""VTA's published bitstream through the real pynq, on the simulated board: what the driver does, and what it refuses."""

from __future__ import annotations

import gc
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import cli
from chai.artifact.save import save
from chai.codegen.compile import executable
from chai.codegen.memory_map import OUTPUT
from chai.devices.pynq import memory, program, published, waiting
from chai.env import env
from chai.errors import DeviceError
from chai.offload.schedule import DeviceStep
from chai.vta import drive, segment as lowering
from chai.vta.program import VtaSegment

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

from tests.passes.common import network  # noqa: E402
from tests.vta.test_compiled import SMALL, images  # noqa: E402

from .test_driver import elsewhere  # noqa: E402
from .vta_board import ORDER, VtaBoard  # noqa: E402

pytestmark = pytest.mark.skipif(pynq.__version__ >= "4", reason="pynq 4 has no Zynq-7000")

IMAGES = [np.random.default_rng(seed).random((1, 1, 8, 8)).astype(np.float32) for seed in range(3)]
Wanted = list[dict[str, np.ndarray]]
PROOFS = 2  # programs before the first: a FINISH alone, and a known one


@pytest.fixture
def board(board_of: Any) -> Iterator[VtaBoard]:
    vta_board = board_of("vta-z7020")
    yield vta_board
    assert vta_board.accelerator.wrong == []


@pytest.fixture(scope="module")
def wanted() -> Wanted:
    net = chai.Net("digits", overlay="vta-z7020", calibrate=IMAGES[0])
    return [net.forward(image) for image in IMAGES]


def digits(board: VtaBoard) -> chai.Net:
    return chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])


@pytest.fixture
def net(board: VtaBoard) -> chai.Net:
    """A network that has run."""
    digits_net = digits(board)
    digits_net.forward(IMAGES[0])
    return digits_net


def right(net: chai.Net, wanted: Wanted) -> None:
    for image, values in zip(IMAGES, wanted):
        outputs = net.forward(image)
        assert all(np.array_equal(outputs[b], values[b]) for b in values)


def refused(board: VtaBoard, words: str) -> DeviceError:
    with pytest.raises(DeviceError, match=words) as caught:
        digits(board).forward(IMAGES[0])
    return caught.value


def fails(net: chai.Net, words: str) -> DeviceError:
    with pytest.raises(DeviceError, match=words) as caught:
        net.forward(IMAGES[1])
    return caught.value


def segment(net: chai.Net) -> VtaSegment:
    """The program of the only segment."""
    (step,) = (s for s in net.schedule.steps if isinstance(s, DeviceStep))
    vta_segment = executable(step.work(net.overlay, net.offload.plan.device_shapes, net.schedule.views))
    assert isinstance(vta_segment, VtaSegment)
    return vta_segment


# -- what it does


def test_digits(net: chai.Net, board: VtaBoard, wanted: Wanted) -> None:
    right(net, wanted)
    assert "fpga:Convolution" in net.schedule.engines()
    assert board.downloads == 1
    assert board.accelerator.ran == PROOFS + 1 + len(IMAGES)


def test_registers_are_written_in_this_order(net: chai.Net, board: VtaBoard) -> None:
    board.accelerator.log.clear()
    board.counts = type(board.counts)()
    net.forward(IMAGES[1])
    assert [name for name, _ in board.accelerator.log] == ORDER
    values = dict(board.accelerator.log)
    assert values["fetch.count"] == len(segment(net).program)
    assert [values[f"{block}.control"] for block in ("fetch", "load", "compute", "store")] == [1, 0x81, 0x81, 0x81]
    assert {values[name] for name in ORDER if name.split(".")[1] in ("inp", "wgt", "uop", "acc", "out")} == {0}
    assert values["fetch.address"] % 256 == 0
    assert board.counts.allocations == 0
    assert set(board.counts.reads) == {"compute.done"}


def test_the_clock_is_set_before_each_download(net: chai.Net, board: VtaBoard) -> None:
    board.accelerator.hangs_at = 0
    pynq.Clocks.fclk0_mhz = 50
    fails(net, "not done")
    data = board.overlay.path.with_name("vta-z7020.bit").read_bytes()
    assert board.loads == [(hashlib.sha256(data).hexdigest(), pytest.approx(100))] * 2


def test_the_first_programs_are_a_finish_and_a_known_one(board: VtaBoard) -> None:
    with digits(board):
        pass
    log = board.accelerator.log
    assert next(value for name, value in log if name == "fetch.count") == 1
    assert [name for name, _ in log] == ORDER * PROOFS
    assert not board.memory.held


def test_a_done_flag_that_stays_is_not_believed(net: chai.Net, board: VtaBoard, clock: Any, wanted: Wanted) -> None:
    board.accelerator.clears = False
    board.accelerator.takes = 0.3
    begin = clock.now
    right(net, wanted)
    assert clock.now - begin > 0.3 * len(IMAGES)


def test_done_without_a_mark_is_not_done(net: chai.Net, board: VtaBoard, wanted: Wanted) -> None:
    """The marks in memory are those of the run before, or what the host wrote there."""
    board.accelerator.deaf = True
    error = fails(net, r"layer 'conv1/3x3' \(conv\): not done after 1\.0 s, 0 of \d+ Tasks completed")
    assert error.layer == "conv1/3x3"
    board.accelerator.deaf = False
    right(net, wanted)


def test_a_compiled_file_is_not_lowered(
    board: VtaBoard, tmp_path: Path, wanted: Wanted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net = chai.Net("digits", overlay=board.overlay.path, calibrate=IMAGES[0])
    save(net, tmp_path / "digits.chai", net.card)
    assert drive.segment is lowering.segment  # which lowers the known program, and nothing else
    monkeypatch.setattr(lowering, "segment", None)
    right(chai.Net(tmp_path / "digits.chai", device="pynq", overlay=board.overlay.path), wanted)
    image = str(next((Path(chai.__file__).parent.parent / "prototxt" / "digits_images").glob("*.png")))
    command = [
        "run",
        str(tmp_path / "digits.chai"),
        "-i",
        image,
        "--overlay",
        str(board.overlay.path),
        "--device",
        "pynq",
    ]
    assert cli.main(command) == 0
    assert image.rsplit("/", maxsplit=1)[-1] in capsys.readouterr().out


def test_each_blob_can_be_kept(board: VtaBoard) -> None:
    nets = [
        chai.Net("digits", device=device, overlay=board.overlay.path, calibrate=IMAGES[0], keep="all")
        for device in ("emulator", "pynq")
    ]
    for net in nets:
        net.forward(IMAGES[2])
    assert set(nets[0].blobs) == set(nets[1].blobs)
    assert len(nets[0].blobs) > 8
    assert all(np.array_equal(nets[1].blobs[b], values) for b, values in nets[0].blobs.items())


# -- ports that go through the processor's caches, and others


def marked(board: VtaBoard, coherent: bool) -> VtaBoard:
    """Write into the manifest what the board's ports are, right or wrong."""
    text = board.overlay.path.read_text()
    board.overlay.path.write_text(text.replace('"coherent": true', f'"coherent": {str(coherent).lower()}'))
    return board


@pytest.mark.parametrize("coherent", [True, False])
def test_each_kind_of_port(board_of: Any, wanted: Wanted, coherent: bool) -> None:
    """Nothing is flushed or invalidated where the results may be in the cache alone; everything is, where they never are."""
    board = marked(board_of("vta-z7020", coherent=coherent), coherent)
    with digits(board) as net:
        right(net, wanted)
        right(net, wanted)
    assert (board.counts.flushed == 0) == (board.counts.invalidated == 0) == coherent


@pytest.mark.parametrize("coherent", [True, False])
def test_the_other_kind_of_port_is_found_before_anything_runs(board_of: Any, coherent: bool) -> None:
    board = marked(board_of("vta-z7020", coherent=coherent), not coherent)
    error = refused(board, "the bitstream of overlay vta-z7020 does not run a (known )?program")
    assert "is the manifest for another board?" in str(error.hint)
    assert not board.memory.held


# -- which bitstream


def test_an_unknown_bitstream_is_refused(board: VtaBoard) -> None:
    path = board.overlay.path.with_name("vta-z7020.bit")
    right = path.read_bytes()
    for other in (right[:-1] + bytes([right[-1] ^ 1]), right + b"x", right[:-1], b""):
        path.write_bytes(other)
        error = refused(
            board, r"vta-z7020\.bit is no bitstream that overlay vta-z7020 knows: its sha256 is [0-9a-f]{64}"
        )
        assert "chai fetch vta-z7020" in str(error.hint)
    assert not board.downloads
    assert not board.counts.reads
    assert not board.accelerator.log


def test_a_fetched_bitstream_is_found(
    board: VtaBoard, tmp_path: Path, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path / "cache"))
    env.cache_clear()
    path = board.overlay.path.with_name("vta-z7020.bit")
    (tmp_path / "cache").mkdir()
    shutil.move(path, tmp_path / "cache")
    right(digits(board), wanted)
    (tmp_path / "cache" / "vta-z7020.bit").unlink()
    program.device.forget(program.device.board(board.overlay))
    error = refused(board, "there is no bitstream of overlay vta-z7020 here")
    assert "chai fetch vta-z7020" in str(error.hint)


def test_nothing_beside_the_bitstream_is_loaded(board: VtaBoard, wanted: Wanted) -> None:
    """A device tree of the same name, say, which pynq would insert."""
    for suffix in (".dtbo", ".hwh", ".xclbin"):
        board.overlay.path.with_name(f"vta-z7020{suffix}").write_bytes(b"something else")
    right(digits(board), wanted)


@pytest.mark.parametrize(
    ("factor", "words"),
    [(1, "clock 0 cannot be set to 100 MHz: "), (5, r"clock 0 runs at 83\.33\d* MHz, and only 100 will do")],
)
def test_a_clock_that_cannot_be_100_mhz_is_refused(board: VtaBoard, factor: int, words: str) -> None:
    board.processor |= dict.fromkeys((0xF8000100, 0xF8000104, 0xF8000108), factor << 12)  # the PLLs, of 50 MHz
    refused(board, words)
    assert not board.downloads


def test_a_wrong_result_of_the_known_program(board: VtaBoard) -> None:
    def flip() -> None:
        output = board.memory.held[max(board.memory.held, key=lambda at: (board.memory.held[at].size == 256, at))]
        output.device[7] ^= 4

    board.accelerator.corrupt = flip
    refused(board, "the bitstream of overlay vta-z7020 does not run a known program: 1 of 256 codes are wrong")
    assert not board.memory.held
    assert not program._boards


def test_a_board_that_does_nothing(board: VtaBoard) -> None:
    board.accelerator.hangs_at = 0
    refused(board, "does not run a program of one FINISH: not done after 1.0 s")
    assert not board.memory.held
    assert board.downloads == 2


def test_a_program_is_checked_in_memory_before_it_starts(
    board: VtaBoard, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relocated wrongly by one entry, or by far."""
    net = digits(board)
    fix = VtaSegment.fix
    for shift in (256, 1 << 24):
        board.accelerator.log.clear()
        moved = lambda self, base, out, by=shift: fix(self, {**base, OUTPUT: base[OUTPUT] + by}, out)  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr(VtaSegment, "fix", moved)
            fails(net, "layers conv1/3x3 to .*STORE.: bytes .* are not all of one buffer that may be stored to")
        assert not board.accelerator.log
        assert not board.memory.held
    right(net, wanted)


# -- what goes wrong while a program runs


@pytest.mark.parametrize("task", [0, 4, -1])
def test_it_never_ends(net: chai.Net, board: VtaBoard, clock: Any, wanted: Wanted, task: int) -> None:
    vta_segment = segment(net)
    board.accelerator.hangs_at = vta_segment.ends[task] - 5
    begin = clock.now
    error = fails(net, r"not done after 1\.0 s")
    done = range(len(vta_segment.tasks))[task]
    assert error.layer == vta_segment.tasks[task].origin[0]
    assert f"layer {error.layer!r}" in error.message
    assert f"{done} of {len(vta_segment.tasks)} Tasks completed" in error.message
    assert 1 <= clock.now - begin < 1.5
    assert board.downloads == 2
    assert not board.memory.held
    board.accelerator.hangs_at = None
    right(net, wanted)
    assert board.downloads == 2


def test_a_reload_that_fails_keeps_the_buffers(net: chai.Net, board: VtaBoard, wanted: Wanted) -> None:
    board.accelerator.hangs_at, board.refuses = 30, "fpga_manager: error"
    held = set(board.memory.held)
    fails(net, "not done")
    gc.collect()
    assert set(board.memory.held) == held
    assert board.accelerator.busy
    fails(net, r"vta-z7020\.bit cannot be loaded: fpga_manager: error")
    assert set(board.memory.held) == held
    board.accelerator.hangs_at, board.refuses = None, ""
    right(net, wanted)
    assert not memory.kept
    net.close()
    assert not board.memory.held


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_at_each_use_of_the_board(
    board: VtaBoard, tmp_path: Path, request: pytest.FixtureRequest, error: type[BaseException]
) -> None:
    """Registers, buffers, flushes, downloads; opening it is mostly the processor's clocks, so in larger steps."""
    net = network(tmp_path, SMALL, device="pynq", overlay=board.overlay.path)
    net.calibrate(images())
    wanted = net.forward(images())["out"]
    gc.freeze()  # only what comes now is looked at in each collection
    request.addfinalizer(gc.unfreeze)
    for again in (False, True):
        fired, n = True, 0
        while fired and n < 400:
            n += 1 if n < 40 else 13
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
                net.forward(images())
                failed = False
            except (error, DeviceError):
                pass  # until here its traceback may have a buffer in one of pynq's frames
            fired = left[0] <= 0
            gc.collect()
            assert not failed or not board.memory.held
            assert not failed or not board.accelerator.busy
            assert board.accelerator.wrong == []
            board.on_use = lambda: None
            assert np.array_equal(net.forward(images())["out"], wanted)
        assert 15 < n < 400, "nothing failed, or there was no end"


@pytest.mark.parametrize("look", [1, 2])
def test_ctrl_c(net: chai.Net, board: VtaBoard, wanted: Wanted, look: int) -> None:
    looks = [0]

    def interrupt() -> None:
        looks[0] += 1
        if looks[0] == look:
            raise KeyboardInterrupt

    board.accelerator.on_look = interrupt
    board.accelerator.takes = 5e-3  # longer than in the model, so that there are several looks
    with pytest.raises(KeyboardInterrupt):
        net.forward(IMAGES[1])
    assert board.downloads == 2
    assert not board.memory.held
    board.accelerator.on_look = lambda: None
    right(net, wanted)


def test_ctrl_c_twice(net: chai.Net, board: VtaBoard, wanted: Wanted) -> None:
    """The second comes while the bitstream is loaded again: the program may still run."""

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
    assert board.accelerator.busy
    board.accelerator.on_look = board.on_use = lambda: None
    right(net, wanted)
    assert board.downloads == 2
    net.close()
    assert not board.memory.held


def test_a_handler_closes_the_network_while_it_runs(net: chai.Net, board: VtaBoard, wanted: Wanted) -> None:
    def close() -> None:
        board.accelerator.on_look = lambda: None
        for user in [*program._boards[board.overlay.digest].users]:
            user.close()

    board.accelerator.on_look = close
    fails(net, "the network was closed while the board ran it")
    assert board.downloads == 2
    assert not board.memory.held
    right(net, wanted)


def test_another_overlay_is_opened_while_it_runs(
    net: chai.Net, board: VtaBoard, clock: Any, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registers are not touched any more, and the buffers stay until another bitstream is loaded."""
    held = set(board.memory.held)

    def other(seconds: float) -> None:
        clock.sleep(seconds)
        program.device.forget(program._boards[board.overlay.digest])
        board.counts.reads.clear()

    board.accelerator.takes = 0.2
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "sleep", other)
        fails(net, "the board was released while a program ran")
    assert set(board.memory.held) == held
    assert board.downloads == 1
    assert not board.counts.reads
    right(net, wanted)
    net.close()
    assert not board.memory.held


@pytest.mark.parametrize("running", [False, True])
def test_another_program_loads_a_bitstream(
    net: chai.Net, board: VtaBoard, wanted: Wanted, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """One that does not ask for chai's lock: registers of its design are not touched, and it is left alone."""
    looks = [0]

    def noted() -> int:
        looks[0] += 1
        if looks[0] <= running:
            return 0
        board.accelerator.busy = False  # it is gone
        return 1

    board.accelerator.hangs_at = 20
    board.accelerator.log.clear()
    with monkeypatch.context() as patch:
        patch.setattr(program._boards[board.overlay.digest], "_noted", 0)
        patch.setattr(published, "noted", noted)
        fails(net, "another program has loaded a bitstream")
    assert len(board.accelerator.log) == running * len(ORDER)
    assert board.downloads == 1
    assert not board.memory.held
    board.accelerator.hangs_at = None
    right(net, wanted)
    assert board.downloads == 2


def test_an_interrupt_is_not_waited_for(
    board: VtaBoard, wanted: Wanted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHAI_PYNQ_WAIT", "interrupt")
    env.cache_clear()
    right(digits(board), wanted)
    assert [r.message for r in caplog.records if r.name == "chai.pynq"] == [
        "CHAI_PYNQ_WAIT=interrupt: the design has no interrupt; its registers are polled instead"
    ]


def test_a_second_process_hears_who_has_the_board(net: chai.Net, board: VtaBoard, tmp_path: Path) -> None:
    assert elsewhere(tmp_path).startswith("the board is in use by process ")
    net.close()
    program.device.leave()
    assert elsewhere(tmp_path) == "has it"


def test_memory_that_is_exhausted(board_of: Any, wanted: Wanted) -> None:
    board = board_of("vta-z7020", memory=1 << 15)
    error = refused(board, "MB of contiguous memory are needed")
    assert "smaller batch" in str(error.hint)
    assert not board.memory.held
    board.memory.size = 1 << 20
    right(digits(board), wanted)
