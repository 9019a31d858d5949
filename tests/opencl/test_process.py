"""A kernel cannot end the process of its network, nor leave anything behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.env import env
from chai.errors import PluginError
from chai.limits import limits
from chai.plugins.opencl.worker import memory as worker_memory
from chai.plugins.opencl.worker.memory import GUARD, MemoryFile, regions
from chai.plugins.opencl.worker.process import Here, Process
from chai.plugins.opencl.worker.processor import SYMPTOM
from chai.util.interpreter import ending
from tests.conftest import HANG
from tests.kernels.common import fork
from tests.leftovers import Leftovers

from .common import KERNEL, XML, network, noise, runs, write

SHAPE = (2, 3, 5, 7)
X = noise(SHAPE)
LAYER = "l Twice data -> y"
AFTER = "\nc Convolution y -> c : convolution_param { num_output: 4 kernel_size: 3 }"


def process(net: chai.Net, layer: str = "l") -> Process:
    """The worker of a network."""
    worker = net.graph.layer(layer).resources.of(Process)
    assert isinstance(worker, Process)
    return worker


def alive(pid: int) -> bool:
    """Whether there is a process of this number, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Wait for the end of a process."""
    return soon(lambda: not alive(pid))


def soon(happened: Callable[[], bool]) -> bool:
    """Wait until something happens, against hangs only."""
    end = time.monotonic() + HANG
    while not happened() and time.monotonic() < end:
        time.sleep(0.01)
    return happened()


def body(text: str) -> str:
    """A kernel with these statements before its own."""
    return KERNEL.replace("    target[at] =", f"    {text}\n    target[at] =")


def test_memory_has_guards_around_every_buffer() -> None:
    buffers, size = regions([5, 0, 9000])
    assert all(b.offset % 4096 == 0 for b in buffers) and [b.size for b in buffers] == [5, 1, 9000]
    ends = [*(b.offset for b in buffers[1:]), size]
    assert all(end - b.offset - b.size >= GUARD for b, end in zip(buffers, ends))
    memory = MemoryFile(buffers, size)
    assert memory.broken() is None
    for index, buffer in enumerate(buffers):
        for place in (buffer.offset - 1, buffer.offset + buffer.size):
            memory.map[place] ^= 1
            assert memory.broken() == index
            assert memory.broken() is None  # and is restored


def test_memory_that_there_is_no_room_for_closes_its_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time would close a file that was opened since."""
    gc.collect()  # what other tests have left may own files
    opened: list[int] = []
    closed: list[int] = []
    close, unnamed_file = os.close, worker_memory._unnamed

    def unnamed() -> int:
        opened.append(unnamed_file())
        return opened[-1]

    def count(file: int) -> None:
        closed.append(file)
        if closed.count(file) == 1:
            close(file)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(worker_memory, "_unnamed", unnamed)
    monkeypatch.setattr(os, "close", count)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        MemoryFile(*regions([5]))
    gc.collect()
    monkeypatch.undo()
    assert len(opened) == 1
    assert closed.count(opened[0]) == 1


def test_words_for_an_end() -> None:
    assert ending(-signal.SIGSEGV) == "by SIGSEGV" and ending(3) == "with exit code 3"


@runs
@pytest.mark.parametrize("device", ["float", "emulator"])
def test_a_worker_that_is_killed_in_a_stream(tmp_path: Path, device: str) -> None:
    write(tmp_path)
    with network(tmp_path, LAYER + AFTER, SHAPE, device=device, keep="all") as net:
        left = Leftovers()

        def batches() -> Iterator[Any]:
            for n in range(6):
                if n == 3:
                    pid = process(net).pid
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
                yield X + n

        results = []
        with pytest.raises(PluginError) as caught:
            results += [y["c"] for y in net.stream(batches())]
        message = str(caught.value)
        expected = (
            r"layer 'l' \(custom type 'Twice'\) failed at .*layers.xml:1: the process of its kernel ended by SIGKILL"
        )
        assert re.search(expected, message)
        assert "'twice', work size 7 x 5 x 6, bottom 0 2x3x5x7, top 0 2x3x5x7" in message
        assert soon(lambda: not left.threads)
        net.forward(X)  # in a new process
        assert np.array_equal(net.blobs["y"], 2 * X)
    with network(tmp_path, LAYER, SHAPE) as net:
        assert np.array_equal(net.forward(X)["y"], 2 * X)


@runs
def test_what_a_kernel_must_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an error of one line, and one network after the other goes on in one interpreter."""
    wrong = {
        "if (at == 0) target[210] = 1;": "it wrote outside of top 0, which has 840 bytes",
        "if (at == 0) target[-1] = 1;": "it wrote outside of top 0, which has 840 bytes",
        "if (at == 0) ((__global float*)source)[-3] = 1;": "it wrote outside of bottom 0, which has 840 bytes",
        "if (at == 3) ((__global float*)source)[3] = 7;": "it wrote into bottom 0, which it may only read",
        "*(volatile __global int*)8 = 1;": r"the process of its kernel ended by SIG(SEGV|BUS)",
        "while (source[0] == source[0]) target[1] += 1;": r"was ended: running took more than 1 s",
        "target[at] = nothing;": "kernel 'twice': error: use of undeclared identifier 'nothing'",
    }
    for text, reason in wrong.items():
        monkeypatch.setenv("CHAI_LIMITS", f"kernel_seconds={1 if 'while' in text else 600}")
        env.cache_clear()
        limits.cache_clear()
        write(tmp_path, twice=body(text))
        with network(tmp_path, LAYER, SHAPE) as net:
            with pytest.raises(PluginError, match=reason):
                net.forward(X)
            pid = process(net).pid
        assert pid is None or gone(pid)
    write(tmp_path)
    with network(tmp_path, LAYER, SHAPE) as net:
        assert np.array_equal(net.forward(X)["y"], 2 * X)


@runs
def test_a_worker_ends_with_its_network(tmp_path: Path) -> None:
    write(tmp_path)
    net = network(tmp_path, LAYER, SHAPE)
    assert process(net).pid is None  # not before it is needed
    net.forward(X)
    pid = process(net).pid
    assert pid is not None and alive(pid)
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "chai-opencl (deleted)" in maps and "/dev/shm/" not in maps  # shared memory without a name
    net.forward(X)
    assert process(net).pid == pid
    net.close()
    assert gone(pid)
    net = network(tmp_path, LAYER, SHAPE)
    net.forward(X)
    pid = process(net).pid
    assert pid is not None
    gc.disable()
    try:
        del net
        assert gone(pid)
    finally:
        gc.enable()


@runs
@pytest.mark.parametrize("how", ["SIGKILL", "at its end"])
def test_a_worker_ends_with_its_owner(tmp_path: Path, how: str) -> None:
    """Even inside a kernel without end. A kernel's own printing does not reach the standard output."""
    endless = "while (source[0] == source[0]) target[1] += 1;"
    write(tmp_path, twice=body('if (at == 0) printf("hello from a kernel\\n");' + endless * (how == "SIGKILL")))
    code = f"""
import os, sys, threading, chai, numpy as np
from chai.plugins.opencl.worker.process import Process
net = chai.Net({str(tmp_path / "net.prototxt")!r}, device="float", custom={str(tmp_path / "layers.xml")!r})
def tell():
    worker = net.graph.layer("l").resources.of(Process)
    while worker.pid is None: pass
    print(worker.pid, flush=True)
threading.Thread(target=tell, daemon=True).start()
net.forward(np.ones({SHAPE}, np.float32))
"""
    network(tmp_path, LAYER, SHAPE)  # writes the prototxt
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    if how == "SIGKILL":
        assert alive(pid)
        owner.kill()
    rest, _ = owner.communicate(timeout=HANG)
    assert "hello" not in rest
    assert gone(pid)


@runs
def test_without_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_OPENCL_INPROCESS", "1")
    write(tmp_path, XML)
    with network(tmp_path, LAYER, SHAPE) as net:
        try:
            net.forward(noise(SHAPE))
        except PluginError as error:
            assert SYMPTOM in str(error)  # only a process of its own may correct PoCL's memory
            pytest.skip("this PoCL knows no name for the processor")
        for shape in (SHAPE, (1, 2, 3, 4)):
            x = noise(shape)
            assert np.array_equal(net.forward(x)["y"], 2 * x)
        assert [*net.graph.layer("l").resources._objects] == [Here]


@runs
def test_a_forked_process_has_a_worker_and_memory_of_its_own(tmp_path: Path) -> None:
    """Two that wrote into one memory took each other's numbers."""
    write(tmp_path)
    with network(tmp_path, LAYER, SHAPE) as net:
        net.forward(X)
        ours = process(net).pid
        (frame,) = net.graph.layer("l")._frames.values()  # type: ignore[attr-defined]
        memory = frame.python._memory
        before = [buffer.copy() for buffer in memory.buffers]
        child = fork()
        if not child:
            try:
                right = np.array_equal(net.forward(X + 1)["y"], 2 * (X + 1)) and process(net).pid not in (None, ours)
                os._exit(0 if right else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert all(np.array_equal(a, b) for a, b in zip(memory.buffers, before))
        assert process(net).pid == ours and np.array_equal(net.forward(X)["y"], 2 * X)
