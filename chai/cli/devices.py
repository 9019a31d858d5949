"""chai devices: list the devices that networks can run on here, test one, or measure a board's processor."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .. import __version__, devices, overlay
from ..devices.base import Device
from ..env import env
from ..errors import ChaiError
from ..evaluate import diagnosis, selftest
from ..evaluate.host import board
from ..overlay import Overlay
from ..overlay.host_model import layout
from ..util.files import complete
from . import options, output
from .parsing import option, refuse, section

EPILOG = """examples:
  chai devices
  chai devices --test                                  test the board if there is one, else the emulator
  chai devices --test --device pynq --overlay vta-z7020
  chai devices --measure -o board.json                 on a board; for chai show --host-model board.json

exit code 1: a result of the device differs from its definition"""

PATIENCE = 20.0  # seconds to load a bitstream and to read the first registers
HANGS = (
    f"the board has not answered for {PATIENCE:g} s. If nothing follows, a register is read that never answers: the accelerator "
    "has no clock, its reset is not released, or the bitstream has nothing at this address. Power cycle the board"
)
# the input of this program ends when the watched step does, or with the process
WATCH = """import select, sys
if not select.select([0], [], [], float(sys.argv[1]))[0]:
    print(sys.argv[2], file=sys.stderr)"""


class ListedDevice(NamedTuple):
    """A device and whether it can be used here."""

    device: str
    usable: bool
    state: str
    summary: str


class ListedOverlay(NamedTuple):
    """An overlay and its boards."""

    overlay: str
    part: str
    boards: list[str]
    title: str


@dataclass(frozen=True)
class Devices(output.Schema):
    """Devices and overlays that networks can run on."""

    schema = "chai.devices/1"
    devices: list[ListedDevice]
    overlays: list[ListedOverlay]
    custom_layers: str


@dataclass(frozen=True)
class Selftest(output.Schema):
    """Comparison of a device with the definitions of Tasks."""

    schema = "chai.selftest/1"
    device: str
    overlay: str
    build: str
    tests: list[selftest.ProbeResult]
    probably: list[str]
    failed: int
    ok: bool


def arguments(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "device")
    option(group, "--test", "run known Tasks and a small network; compare every bit")
    option(
        group,
        "--repeat N",
        f"run one Task of each engine N times, compare the runs (default: {selftest.TIMES} on a board, else 0)",
        type=partial(options.count, least=0),
    )
    option(group, "--measure", "time what a board's processor does; takes some minutes")
    option(group, "--device NAME", "device to test (default: pynq if it is usable, else emulator)")
    options.flag(group, "overlay")
    options.as_json(parser)
    option(section(parser, "output"), "-o --output FILE", "file for --measure (default: board.json)", type=output.file)


def execute(args: argparse.Namespace) -> int:
    """Print every device with its state, and the compiler of custom layers; or test one."""
    if args.measure:
        refuse(args, ("test", "repeat"), "with --measure", hint="one after the other")
        refuse(args, ("json",), "with --measure, whose file is JSON", hint="-o FILE")
        return _measure(args)
    refuse(args, ("output",), "without --measure, whose file it is", hint="chai devices --measure")
    if args.test:
        return _test(args)
    refuse(args, ("repeat",), "without --test", hint="chai devices --test")
    refuse(args, ("device", "overlay"), "without --test, whose device it is", hint="chai devices --test")
    opened = {name: devices.open(name) for name in devices.names()}
    states = [ListedDevice(name, *device.status(), device.summary) for name, device in opened.items()]
    boards = [overlay.load(name) for name in overlay.names()]
    jit = "numba" if importlib.util.find_spec("numba") else "none: custom layers run as plain Python"
    if args.json:
        listed = [ListedOverlay(o.name, o.part, [b.name for b in o.boards], o.title) for o in boards]
        output.as_json(Devices(states, listed, jit))
        return 0
    rows = [[s.device, "yes" if s.usable else "no", s.state, s.summary] for s in states]
    output.table(["device", "usable", "on", "what"], rows, "llll")
    output.result("")
    output.table(["overlay", "part", "per cycle", "clock", "boards"], [_row(board) for board in boards], "llrll")
    output.result("")
    output.result(f"custom layers are compiled by: {jit}")
    return 0


def _row(listed: overlay.Overlay) -> list[str]:
    """Return the cells of an overlay: what its manifest says of hardware that there is, or may be."""
    if listed.emulated:
        return [listed.name, "-", "-", "-", "none: it exists on the emulator alone"]
    clock = f"{listed.clock_mhz:g} MHz{', assumed' if 'clock_mhz' in listed.assumed else ''}"
    return [listed.name, listed.part, f"{listed.macs} MAC", clock, ", ".join(board.name for board in listed.boards)]


def _test(args: argparse.Namespace) -> int:
    device, on = _chosen(args)
    facts = device.about(on)
    results: list[selftest.ProbeResult] = []
    quiet = args.quiet or (sys.stdout.isatty() and not args.json)  # a line for each test is progress enough

    def tell(result: selftest.ProbeResult) -> None:
        results.append(result)
        if not args.json:
            verdict = "PASS" if result.ok else "FAIL"
            output.result(f"{verdict}  {result.name}" + (f": {result.reason}" if result.reason else ""))
            sys.stdout.flush()

    try:
        if facts:
            with _watched():
                selftest.opened(device, on)
        for result in output.progress(selftest.run(device, on), len(selftest.probes(on)), "tests", quiet):
            tell(result)
        times = (selftest.TIMES if facts else 0) if args.repeat is None else args.repeat
        for probe in selftest.repeated(on) if times else ():
            runs = selftest.Repeat(probe, times)
            for _ in output.progress(runs.run(device, on), times, "runs", args.quiet):
                pass
            tell(runs.result)
        checks = list(selftest.checks(device, on))
        for result in checks:
            tell(result)
        tasks = results[: len(results) - len(checks)]
        probably = diagnosis.diagnose(device, on, tasks, checks) if facts else []
    except ChaiError as error:
        if facts and not args.json:
            _report(device, on, facts, [("stopped", str(error))])
        raise
    failed = sum(not result.ok for result in results)
    if args.json:
        output.as_json(Selftest(device.name, on.name, f"{on.build:08x}", results, probably, failed, not failed))
    else:
        output.result(f"{len(results) - failed} of {len(results)} passed: device {device.name}, overlay {on.name}")
    if facts and not args.json:
        outcome = selftest.outcome(device, on, results)
        _report(device, on, facts, [*outcome, *(("probably", sentence) for sentence in probably)])
    return 1 if failed else 0


@contextmanager
def _watched() -> Iterator[None]:
    """Start a process that prints HANGS unless the context ends in time: during a hanging access no thread here runs."""
    command = [sys.executable, "-I", "-S", "-c", WATCH, str(PATIENCE), HANGS]
    with subprocess.Popen(command, stdin=subprocess.PIPE):  # leaving it closes the input, and waits
        yield


def _measure(args: argparse.Namespace) -> int:
    device, on = _chosen(args)
    board.check(device)
    logging.getLogger("chai").setLevel(logging.ERROR)  # the weights of these networks are random
    samples, steps = [], board.measure(device, on)
    for some in output.progress(steps, board.STEPS, "steps", args.quiet):
        samples += some
    path = args.output or Path("board.json")
    with complete(path) as part:
        part.write_text(layout(board.section(device, on, samples)) + "\n", encoding="utf-8")
    output.say(f"wrote {path}")
    if not args.quiet:
        output.say(f"next: chai show NET --overlay {on.name} --host-model {path}")
    return 0


def _chosen(args: argparse.Namespace) -> tuple[Device, Overlay]:
    """Return the device and the overlay: those that are named, else a board if one can be used here."""
    name = args.device or env().device or ("pynq" if devices.open("pynq").status()[0] else devices.DEFAULT)
    return devices.open(name), overlay.load(args.overlay or overlay.default)


def _report(device: Device, on: Overlay, facts: Sequence[tuple[str, str]], outcome: Iterable[tuple[str, str]]) -> None:
    output.result("", "To report this board, paste into an issue:", "")
    output.result("```", f"chai {__version__} devices --test --device {device.name} --overlay {on.name}")
    output.result(*(f"{name:9}  {value}" for name, value in (*facts, *outcome)), "```")
