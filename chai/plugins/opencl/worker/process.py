"""Run kernels in a process of their own, which may die without ending that of the network."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import weakref
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from ....limits import limits
from ....util.interpreter import command, ending
from ....util.log import logger
from ....util.sharing import Mutex, forgets
from .engine import EngineError, KernelRunner
from .memory import MemoryFile

log = logger("chai.opencl")
LONGEST = 1 << 20  # bytes of an answer; a compiler's log may be long


class Died(Exception):
    """The process ended, or was ended because it did not answer; the message says how."""


class Here:
    """Runs kernels in this process, as Process does: for debuggers, and for kernels that are trusted."""

    def __init__(self) -> None:
        self._lock = Mutex()
        self._engine: KernelRunner | None = None
        forgets(self)

    def forget(self) -> None:
        self._engine = None

    close = forget

    def run(self, number: int, spec: Mapping[str, Any], memory: MemoryFile) -> None:
        with self._lock:
            self._engine = engine = self._engine or KernelRunner(own_process=False)
            if number not in engine.programs:
                engine.build(number, spec, memory.map)
            engine.run(number)

    def drop(self, number: int) -> None:
        if (engine := self._engine) is not None:
            engine.programs.pop(number, None)


class Process:
    """The worker process of one network, started for its first kernel, and again after it died.

    A program is compiled before its first run. Requests of several threads take turns. It ends with ``close``, with this
    object, and with this process. A forked process starts one of its own.
    """

    def __init__(self) -> None:
        self._lock = Mutex()
        self._begin()
        forgets(self)

    def _begin(self) -> None:
        self._child: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._finalizer: weakref.finalize[Any, Process] | None = None
        self._built: set[int] = set()
        self._dropped: list[int] = []

    def forget(self) -> None:
        if self._child is not None:
            self._child[1].close()
        if self._finalizer is not None:
            self._finalizer.detach()
        self._begin()

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._child is None else self._child[0].pid

    def run(self, number: int, spec: Mapping[str, Any], memory: MemoryFile) -> None:
        """Run a program on its memory, in which results are then. Raises EngineError and Died."""
        with self._lock:
            if number not in self._built:
                self._ask({"program": number, "build": spec}, limits().build_seconds, "compiling", memory.file)
                self._built.add(number)
            dropped, self._dropped = self._dropped, []
            self._ask({"program": number, "run": True, "drop": dropped}, limits().kernel_seconds, "running")

    def drop(self, number: int) -> None:
        """Release a program."""
        if number in self._built:  # no lock: the garbage collector calls this in any thread; append is atomic
            self._dropped.append(number)

    def close(self) -> None:
        """Release everything. The next run starts over."""
        with self._lock:
            if self._finalizer is not None:
                self._finalizer()
            self._begin()

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        if self._child is None:
            ours, theirs = socket.socketpair()
            with theirs:
                child = subprocess.Popen(
                    [*command("chai.plugins.opencl.worker.main"), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # what kernels print: the standard output belongs to the results of chai
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C must reach only this process, which then ends that one
                )
            self._child = child, ours
            self._finalizer = weakref.finalize(self, _end, child, ours, os.getpid())
            log.info("OpenCL kernels run in process %d", child.pid)
        return self._child

    def _ask(self, request: Mapping[str, Any], seconds: int, doing: str, file: int | None = None) -> None:
        """Send a request and wait for its answer. Raises Died and EngineError."""
        child, channel = self._started()
        try:
            channel.settimeout(seconds)
            data = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(channel, [data], [] if file is None else [file])
            channel.sendall(data[sent:])
            answer = json.loads(_line(channel, monotonic() + seconds))
            refusal = EngineError(str(answer["error"]), int(answer["stage"]), str(answer["log"])) if answer else None
        except TimeoutError:
            self.close()
            raise Died(f"was ended: {doing} took more than {seconds} s") from None
        except (OSError, ValueError, KeyError, TypeError):
            with suppress(subprocess.TimeoutExpired):  # an answer that makes no sense comes from one that lives on
                child.wait(1)
            code = child.returncode
            self.close()
            raise Died(f"ended {ending(code)}" if code is not None else "was ended: it sent no answer") from None
        except BaseException:  # Ctrl-C: a late answer must not be taken for that to the next request
            self.close()
            raise
        if refusal is not None:
            raise refusal


def _line(channel: socket.socket, deadline: float) -> bytes:
    """Return the next line. Raises TimeoutError at the deadline, OSError at the end of the channel."""
    data = b""
    while not data.endswith(b"\n"):
        channel.settimeout(max(deadline - monotonic(), 1e-3))
        received = channel.recv(1 << 16)
        if not received or len(data) > LONGEST:
            raise OSError("no answer")
        data += received
    return data


def _end(child: subprocess.Popen[bytes], channel: socket.socket, owner: int) -> None:
    """Kill a worker; not in a process that was forked from its owner."""
    channel.close()
    if os.getpid() == owner:
        child.kill()
        child.wait()
