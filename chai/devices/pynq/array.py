"""A board with an accelerator of chai's own, which says what it is and what it does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import perf_counter

from ...codegen.chain import Chain
from ...driver.registers import Registers
from ...env import env
from ...errors import DeviceError
from ...tasks import Task
from ...util.log import logger
from . import ports
from .board import Board
from .clocks import TOLERANCE
from .finding import download
from .memory import Lost, PynqBuffers, fail
from .waiting import LOST, Interrupt, Polling

log = logger("chai.pynq")

RESET = 5e-3  # seconds that a reset may take
SILENCE = 0, 0xFFFFFFFF  # what a register reads that nothing drives


class ArrayBoard(Board, Registers):
    """A board that runs Chains; ``stuck`` if a reset has not stopped the last one."""

    _ended = False  # whether a chain was done since the download
    _doubted = False  # whether its cycle counter was found to be wrong
    _waiting: Polling | Interrupt = Polling()

    def open(self) -> None:
        self.device, driver, self._handoff, self.mhz = download(self.overlay)
        self.bus, self._pins = driver, list(driver.pins)
        self._id = self.overlay.registers["ID"].value
        self.check()
        if env().pynq_wait == "interrupt":
            self._waiting = _interrupt(self._pins)

    def close(self) -> None:
        if os.getpid() == self.process:  # a fork does not have the thread
            self._waiting.close()
        super().close()

    def read(self, name: str) -> int:
        try:
            return int(self.bus.read(self.offsets[name]))
        except Exception as error:
            fail(f"register {name} cannot be read", error)

    def write(self, name: str, value: int) -> None:
        try:
            self.bus.write(self.offsets[name], value)
        except Exception as error:
            fail(f"register {name} cannot be written", error)

    def check(self) -> None:
        """Raise Lost unless the registers show the accelerator of this overlay and build."""
        expected = self._id
        number = self.read("ID")
        if number != expected:
            raise Lost(
                f"no accelerator of chai answers: register ID reads {number:#010x}, expected {expected:#010x}",
                hint="nothing drives the registers: does the accelerator have a clock, and is its reset released?"
                if number in SILENCE
                else "another bitstream may have been loaded; load the network again",
            )
        build = self.read("BUILD")
        if build != self.overlay.build:
            raise Lost(
                f"the bitstream is of build {build:08x}, overlay {self.overlay.name} is build {self.overlay.build:08x}",
                hint="take the bitstream that was built from this overlay.json, or compile the network for the other",
            )

    def checks(self) -> Iterator[tuple[str, str]]:
        with self.lock:
            widths = "; ".join(ports.wrong(self.overlay.family, self._handoff, self.device))
            yield "widths of memory ports", widths and f"{widths}: {ports.REMEDY}"
            if self._pins and self._ended:
                yield "interrupt", self._interrupted()

    def _interrupted(self) -> str:
        """Return why the interrupt of the last chain does not come; "" if it does."""
        done = self.mask("IRQ", "done")
        if not self.read("IRQ") & done:
            return "the accelerator does not raise it: a chain was done, and register IRQ does not say so"
        kept = self._waiting
        try:
            if isinstance(kept, Polling):
                self._waiting = Interrupt(self._pins[0])
            assert isinstance(self._waiting, Interrupt)
            self.write("IRQ_ENABLE", done)
            if self._waiting.comes(LOST):
                return ""
            return (
                f"register IRQ says done, and none came in {LOST:g} s: is the accelerator's interrupt wired to the "
                "controller, and the controller to the processor?"
            )
        except Exception as error:  # no /dev/uioN, or one that cannot be opened: pynq has an error of its own for each
            return f"{self._pins[0]}: {error}"
        finally:
            self.write("IRQ_ENABLE", 0)
            self.write("IRQ", done)
            if self._waiting is not kept:
                self._waiting.close()
                self._waiting = kept

    def run(self, segment: Chain, memory: PynqBuffers, seconds: float, expected: float = 0.0) -> float | None:
        tasks = segment.tasks
        self.check()
        try:
            if isinstance(self._waiting, Interrupt):
                events = self.mask("IRQ", "done", "error")
                self.write("IRQ", events)  # those of the previous chain
                self.write("IRQ_ENABLE", events)
            begin = perf_counter()
            self.stuck = True
            self.start(segment.entry(memory.addresses), len(tasks))
            self._wait(tasks, seconds, expected)
            self.stuck, self._ended = False, True
            wall = (perf_counter() - begin) * 1000
            cycles = self.cycles()
            self.check()  # registers of another accelerator mean nothing
            return self._counted(cycles, wall)
        except DeviceError:
            self.stop()
            raise
        except BaseException:  # Ctrl-C too: the accelerator must not write into released memory
            with suppress(DeviceError):
                self.stop()
            raise

    def stop(self) -> None:
        try:
            self.check()  # do not write to another accelerator's registers
        except Lost:
            self.stuck = False
            raise
        self.reset()

    def _counted(self, cycles: int, wall: float) -> float | None:
        """Return milliseconds of the accelerator's clock; None if unknown or longer than the host measured."""
        if not self.mhz:
            return None
        ms = cycles / (self.mhz * 1000)
        if ms <= wall * (1 + TOLERANCE):
            return ms
        if not self._doubted:
            log.warning("the accelerator counted %.3f ms in a run of %.3f ms: its time is not reported", ms, wall)
        self._doubted = True
        return None

    def reset(self) -> None:
        self.write("CONTROL", self.mask("CONTROL", "reset"))
        for late in Polling().looks(RESET):
            self.stuck = bool(self.bits("STATUS", "busy", self.read("STATUS")))
            if late or not self.stuck:
                return

    def _wait(self, tasks: Sequence[Task], seconds: float, expected: float) -> None:
        masks = self.masks
        for late in self._waiting.looks(seconds, expected):
            status = self.read("STATUS")
            self.check_running()
            if status & masks["STATUS", "error"]:
                raise self.failed(tasks)
            if status & masks["STATUS", "done"]:
                if sum(self.done().values()) != len(tasks):  # it was another chain, or these are another's registers
                    raise self.late(tasks)
                return
            if late or not status & masks["STATUS", "busy"]:
                raise self.late(tasks, f"{seconds:.1f} s" if late else "")


def _interrupt(pins: Sequence[str]) -> Polling | Interrupt:
    """Return an Interrupt for CHAI_PYNQ_WAIT=interrupt, or Polling if that is impossible. ``pins``: one, or none."""
    try:
        if pins:
            return Interrupt(pins[0])
        reason = "in this .hwh the accelerator's interrupt is not connected to an AXI interrupt controller"
    except Exception as error:  # no /dev/uioN, or one that cannot be opened: pynq has an error of its own for each
        reason = f"{pins[0]}: {error}"
    log.warning("CHAI_PYNQ_WAIT=interrupt: %s; STATUS is polled instead", reason)
    return Polling()
