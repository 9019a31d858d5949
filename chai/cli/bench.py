"""chai bench: time a network side by side with other engines."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from ..blob import show
from ..env import THREADS
from ..errors import UsageError
from ..evaluate.bench.engines import OPENCV, PeerEngine, unlike
from ..text import number_of
from ..zoo import is_compiled
from . import options, output
from .parsing import option, refuse, section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..runtime.perf import Spread
    from .bench_measure import Further

EPILOG = """examples:
  chai bench
  chai bench resnet50 --threads 1,2 --batch 1,8 --rounds 50
  chai bench googlenet --device emulator --start
  chai bench net.chai --device pynq

Rounds are interleaved, one pass of chai and one of each peer, so that all see
the same machine; in their orders each follows each other one equally often.
Each number of threads and batch is measured in a process of its own. Without
WEIGHTS all run the same random ones. OpenCV, which reads Caffe's files, is
installed by: pip install "chai-fpga[bench]". Engines that need a converted file
are timed in a clone: python -m tools.bench. """
ENGINES = {"opencv": OPENCV}
ELSEWHERE = "python -m tools.bench"  # which has the options that these are; both have _MOVED only to say so
_MOVED = {"int8": 0, "peak": 0, "all": 0, "roofline": 1, "history": 1}  # words after each
STARTS = 20  # rounds of processes, at most
NOISE = 0.1  # difference of the two halves of a run, and slow-down since the last one, that is worth a remark


class BenchTimes(TypedDict):
    """Milliseconds, or times as multiples of others."""

    median: float
    min: float


class BenchRun(TypedDict):
    """Figures of one batch and number of threads.

    ``spin`` is how much more work the threads do than one, ``measurable`` whether its ``min`` is 0.9 of their number.
    ``ratio`` is each peer's time divided by chai's, ``difference`` the largest one of the outputs, ``noise`` the relative
    difference of the two halves of the run.
    """

    batch: int
    threads: int
    spin: BenchTimes | None
    measurable: bool
    load: float
    noise: float
    ms_per_image: dict[str, Spread]
    ratio: dict[str, BenchTimes]
    difference: dict[str, float]


class BenchStart(TypedDict):
    """Milliseconds of processes from start to the first result; peak memory in MB of one with 100 more.

    ``cpu_ms`` is the median of those 100 passes' CPU time, ``slowest`` the largest as a multiple of it. All three are null
    if that process failed.
    """

    wall: BenchTimes
    cpu: BenchTimes
    mb: float | None
    cpu_ms: float | None
    slowest: float | None


@dataclass(frozen=True)
class Bench(output.Schema):
    """Benchmark of a network: ``runs`` has one part per batch and number of threads, ``start`` figures of processes.

    ``clock`` is that of passes, "wall" or "processor"; ``load`` the machine's load before all, ``kernels`` chai's, ``versions``
    are the peers'. ``instructions`` are the sets that each is known to use, the best first.
    """

    schema = "chai.bench/5"
    network: str
    inputs: dict[str, list[int]]
    random_weights: bool
    device: str
    overlay: str | None
    kernels: str
    processor: str
    versions: dict[str, str]
    instructions: dict[str, list[str]]
    rounds: int
    clock: str
    load: float
    runs: list[BenchRun]
    start: dict[str, BenchStart] | None


def arguments(parser: argparse.ArgumentParser) -> None:
    common(parser, tuple(ENGINES))
    options.as_json(parser)
    for name, words in _MOVED.items():
        parser.add_argument(f"--{name}", nargs=words, action=_Moved, help=argparse.SUPPRESS)


class _Moved(argparse.Action):
    """Refuse an option that another command has."""

    def __call__(self, parser: argparse.ArgumentParser, args: Any, values: Any, option: str | None = None) -> NoReturn:
        raise argparse.ArgumentError(None, f"{option} is an option of {ELSEWHERE}, which is run in a clone of chai")


def common(parser: argparse.ArgumentParser, peers: tuple[str, ...]) -> None:
    """Add the options of every benchmark, of which ``peers`` are the engines to choose from."""
    options.network(parser, default="googlenet")
    group = section(parser, "device")
    option(
        group,
        "--device NAME",
        "device to run on, see chai devices (default: float, like the peers; emulator for a compiled network)",
    )
    options.flag(group, "overlay")
    option(group, "--threads N,...", "threads of each; several are timed in turn (default: 1)", type=_counts)
    option(
        group,
        "--against NAME,...",
        f"peers: {', '.join(peers)}, or all or none (default: opencv)",
        type=partial(_peers, peers),
    )
    group = section(parser, "passes")
    option(group, "--batch N,...", "images per pass (default: 1, or the batch it was compiled for)", type=_counts)
    option(group, "--rounds N", "passes of each", type=options.count, default=20)
    option(group, "--processor-time", "time passes by what all their threads compute, on a busy machine")
    group = section(parser, "more figures")
    option(
        group,
        "--start",
        "time processes from their start to the first result, and measure the peak memory of 100 passes; batch 1",
    )


def _peers(known: tuple[str, ...], text: str) -> tuple[str, ...]:
    names = {"all": known, "none": ()}.get(text, tuple(text.split(",")))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}, all, none; more: {ELSEWHERE}")
    return names


def _counts(text: str) -> tuple[int, ...]:
    counts = text.split(",")
    if not all(count.isdecimal() and len(count) <= 5 and int(count) for count in counts):
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected numbers of at least 1, e.g. 1,2")
    return tuple(dict.fromkeys(map(int, counts)))


def execute(args: argparse.Namespace) -> int:
    """Time a network, and print the figures."""
    code, figures = measured(args, ENGINES)
    if figures is not None:
        if args.json:
            output.as_json(Bench(**figures))
        else:
            report(figures)
    return code


def measured(
    args: argparse.Namespace, engines: Mapping[str, PeerEngine], further: Further | None = None
) -> tuple[int, dict[str, Any] | None]:
    """Time interleaved passes, each combination of threads and batch in a process of its own.

    Return the exit code and the figures, None if there are no passes. ``further`` adds figures to those of each run.
    """
    _complete(args)
    if "numpy" in sys.modules:
        raise UsageError(
            "threads cannot be set any more: numpy is loaded already", hint="run it as a command: chai bench"
        )
    from . import bench_measure as measure

    code = 0
    figures: dict[str, Any] = {"rounds": args.rounds, "load": os.getloadavg()[0], "runs": [], "start": None}
    figures["clock"] = "processor" if args.processor_time else "wall"
    noted: set[str] = set()
    with TemporaryDirectory(prefix="chai-bench-") as name:
        for batch, threads in product(args.batch, args.threads):
            folder = Path(name, f"{batch}-{threads}")
            folder.mkdir()
            work = measure.Measurement(args, engines, threads, folder)
            code, answer = measure.apart(partial(work.run, batch, further), threads, quiet=bool(figures["runs"]))
            if code:
                return code, None
            figures |= answer["network"]
            figures["runs"].append(answer["run"])
            new = [note for note in answer["notes"] if note not in noted]
            output.say(*(f"note: {note}" for note in new))
            noted |= {*new}
        if args.start:
            threads = args.threads[0]
            work = measure.Measurement(args, engines, threads, Path(name))
            code, programs = measure.apart(work.programs, threads, quiet=True)
            if not code:
                times = min(args.rounds, STARTS)
                figures["start"] = measure.started(programs, threads, times, Path(name, "byte code"), args.quiet)
    output.say(*(f"warning: {sentence}" for sentence in unlike(figures["instructions"])))
    return code, figures


def _complete(args: argparse.Namespace) -> None:
    """Check the options and fill in those that were not typed."""
    if args.threads and max(args.threads) > THREADS:
        raise UsageError(f"--threads {max(args.threads)}: expected at most {THREADS}", hint="--threads 1,2")
    if is_compiled(args.net):
        refuse(args, ("against",), f"for {args.net}, which is compiled: peers need a prototxt and a caffemodel")
    args.against = ("opencv",) if args.against is None else args.against
    args.threads, args.batch = args.threads or (1,), args.batch or (None,)


def described(run: Mapping[str, Any]) -> str:
    """Return batch and threads of a run."""
    return f"batch {run['batch']}, {number_of(run['threads'], 'thread')}"


def report(figures: Mapping[str, Any]) -> None:
    """Print a table for each number of threads and batch, and one for starts."""
    size = ", ".join(f"{blob} {show(tuple(shape))}" for blob, shape in figures["inputs"].items())
    device = f"device {figures['device']} ({figures['kernels']})"
    output.result(f"{figures['network']}   {size}   {device}   {figures['processor']}   load {figures['load']:.1f}")
    rounds = figures["rounds"]
    output.result(
        f"ms per image, {figures['clock']} time; {rounds} interleaved rounds, each follows each other one equally often"
    )
    known = "; ".join(f"{name} {' '.join(used) or '?'}" for name, used in figures["instructions"].items())
    output.result(f"instructions, as far as each says: {known}")
    if figures["random_weights"]:
        output.result("random weights, the same for all")
    for run in figures["runs"]:
        _run(run)
    if figures["start"]:
        _start(figures["start"], figures["runs"][0]["threads"])


def _run(run: Mapping[str, Any]) -> None:
    threads = run["threads"]
    spin = ""
    if run["spin"]:
        least, median = (f"{run['spin'][key]:.2f}" for key in ("min", "median"))
        spin = f": {threads} threads do {least} times the work of one at best, {median} in the median"
    output.result("", f"{described(run)}{spin}")
    rows = []
    for name, times in run["ms_per_image"].items():
        ratio = run["ratio"].get(name, {})
        cells = [f"{ratio[key]:.2f} x" if run["measurable"] else "-" for key in ("min", "median") if ratio]
        difference = f"{run['difference'][name]:.1e}" if name in run["difference"] else ""
        rows.append(
            [name, *(f"{times[key]:.2f}" for key in ("min", "median", "p90")), *(cells or ["", ""]), difference]
        )
    columns = ["", "min", "median", "p90", "min / chai's", "median / chai's", "largest difference"]
    output.table(columns, rows, "lrrrrrr", optional=("largest difference", "p90"))
    if not run["measurable"]:
        output.result(
            f"ratios of {threads} threads: not measurable here, {threads} threads do too little more than one"
        )
    if run["noise"] > NOISE:
        output.say(
            f"warning: {described(run)}: the two halves of the run differ by {run['noise']:.0%}: the machine was not quiet"
        )


def _start(starts: Mapping[str, Any], threads: int) -> None:
    output.result("", f"processes with compiled byte code, batch 1, {number_of(threads, 'thread')}:")
    output.result("from start to the first result; peak memory, and the slowest of 100 passes in CPU time")
    rows = [
        [
            name,
            *(f"{each[kind][key]:.0f}" for kind in ("wall", "cpu") for key in ("min", "median")),
            *(["-", "-"] if each["mb"] is None else [f"{each['mb']:.0f}", f"{each['slowest']:.2f} x"]),
        ]
        for name, each in starts.items()
    ]
    columns = ["", "wall ms, min", "median", "CPU ms, min", "median", "peak MB", "slowest / median"]
    output.table(columns, rows, "lrrrrrr")
