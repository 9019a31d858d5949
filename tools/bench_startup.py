"""Compare start-up times of commands with those of programs that do the same, and with another commit.

    python tools/bench_startup.py [--rounds 21] [--against CHECKOUT] [--models FOLDER]
    python tools/bench_startup.py --count --against CHECKOUT

Processes are interleaved. Printed are processor time (user and system), which depends least on other work of the machine,
and wall time: medians and minima in milliseconds, and the ratio of the minima of processor time. Byte code is read from a
folder of this run's own, as in an installed package. A command is compared with the imports that any program would need
for it; a network compiled from FOLDER (deploy.prototxt, weights.caffemodel, images/) with OpenCV 4, which reads the Caffe
files. CHECKOUT is another commit's working tree.

With --count the instructions of chai's processes are counted instead, under valgrind, and those of 20 passes of a network on the
emulator. Counts are the same whatever else the machine does, but valgrind knows no AVX512: kernels are those of AVX2.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = "import google.protobuf.descriptor_pool, google.protobuf.message_factory, rich.table, rich.console"
TABLE = (
    SCHEMA + "\nt = rich.table.Table()\nfor c in range(5): t.add_column(str(c))\n"
    "for r in range(142): t.add_row(*(f'cell {r} {c}' for c in range(5)))\nrich.console.Console().print(t)"
)
FORWARD = "import sys, numpy, chai\nchai.Net(sys.argv[1]).forward(numpy.zeros((1, 3, 224, 224), 'f'))"
OPENCV = (
    "import sys, numpy, cv2\nnet = cv2.dnn.readNetFromCaffe(*sys.argv[1:3])\n"
    "net.setInput(numpy.zeros((1, 3, 224, 224), 'f'))\nnet.forward()"
)


PASSES = (
    "import sys, numpy, chai\nx = numpy.random.default_rng(1).random((2, 1, 8, 8), 'f')\n"
    "net = chai.Net('digits', device='emulator', calibrate=x)\nfor _ in range(int(sys.argv[1])): net.forward(x)"
)
COUNTED = 20  # passes
VALGRIND = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]


class Line(NamedTuple):
    """``command`` is chai's, with {chai} where a compiled network is named; ``bound`` is the goal for the ratio, or None."""

    name: str
    command: list[str]
    peer: list[str]
    bound: float | None
    terminal: bool = False


class Time(NamedTuple):
    """Milliseconds of a process."""

    cpu: float
    wall: float


SHOW = ["-m", "chai", "show"]
LINES = [
    Line("--help", ["-m", "chai", "--help"], ["-c", "import argparse"], 1.3),
    Line("show googlenet, piped", [*SHOW, "googlenet"], ["-c", SCHEMA], None),
    Line("show googlenet, terminal", [*SHOW, "googlenet"], ["-c", TABLE], None, True),
]


def with_models(folder: Path) -> list[Line]:
    """Return the lines that need a trained GoogLeNet."""
    files = [str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel")]
    image = str(min((folder / "images").iterdir()))
    compiled = "{chai}"
    return [
        Line("show .chai, to Caffe files", [*SHOW, compiled], [*SHOW, *files, "--overlay", "pynq-z2"], 1.0),
        Line(
            "run .chai, to numpy and PIL", ["-m", "chai", "run", compiled, "-i", image], ["-c", "import numpy, PIL"], 9
        ),
        Line("first result .chai, to OpenCV 4", ["-c", FORWARD, compiled], ["-c", OPENCV, *files], 0.6),
    ]


def once(command: list[str], terminal: bool, environment: dict[str, str], folder: str) -> Time:
    """Return the time of one process."""
    parent, child = pty.openpty() if terminal else (-1, -1)
    begin = perf_counter()
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=child if terminal else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
    ) as process:
        if terminal:
            os.close(child)
            _drain(parent)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = (perf_counter() - begin) * 1000
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return Time((used.ru_utime + used.ru_stime) * 1000, wall)


def _drain(parent: int) -> None:
    try:
        while os.read(parent, 65536):
            pass
    except OSError:
        pass  # the process has closed its end
    os.close(parent)


def columns(
    line: Line, against: Path | None, compiled: dict[Path, str], base: dict[str, str]
) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yield name, command and environment of each program of a line."""
    for name, tree in (("chai", ROOT), *((("before", against),) if against else ())):
        command = [compiled.get(tree, "") if word == "{chai}" else word for word in line.command]
        yield name, command, {**base, "PYTHONPATH": str(tree)}
    yield "peer", line.peer, {**base, "PYTHONPATH": str(ROOT)}


def counted(command: list[str], environment: dict[str, str], folder: str) -> int:
    """Return the instructions of one process, whose byte code is there already."""
    once(command, False, environment, folder)
    run = subprocess.run(
        [*VALGRIND, sys.executable, *command], capture_output=True, text=True, env=environment, cwd=folder, check=True
    )
    (count,) = re.findall(r"I +refs: +([0-9,]+)", run.stderr)
    return int(count.replace(",", ""))


def print_counts(trees: list[Path], base: dict[str, str], folder: str) -> None:
    """Print the instructions of each command and of passes, in millions, and the ratio to the other tree's."""
    alone = {**base, "PYTHONHASHSEED": "0", "CHAI_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows: dict[str, list[int]] = {}
    for tree in trees:
        environment = {**alone, "PYTHONPATH": str(tree)}
        for line in (line for line in LINES if not line.terminal):
            rows.setdefault(line.name, []).append(counted(line.command, environment, folder))
        first, more = (counted(["-c", PASSES, str(n)], environment, folder) for n in (1, 1 + COUNTED))
        rows.setdefault("digits to its first pass", []).append(first)
        rows.setdefault(f"{COUNTED} passes of digits", []).append(more - first)
    for name, counts in rows.items():
        ratio = f"   ratio {counts[0] / counts[1]:.4f}" if len(counts) > 1 else ""
        print(f"{name:32s} {'   '.join(f'{count / 1e6:10.3f} M' for count in counts)}{ratio}", flush=True)


def main() -> None:
    """Print a line per command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--count", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chai-bench-startup-") as folder:
        base = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/byte code", "TERM": "xterm"}
        base.pop("PYTHONDONTWRITEBYTECODE", None)
        trees = [ROOT, *([args.against.resolve()] if args.against else [])]
        if args.count:
            print_counts(trees, base, folder)
            return
        compiled: dict[Path, str] = {}
        if args.models:
            models = args.models.resolve()
            for tree in trees:
                compiled[tree] = f"{folder}/{len(compiled)}.chai"
                make = ["-m", "chai", "compile", f"{models}/deploy.prototxt", f"{models}/weights.caffemodel"]
                make += ["--calibration", f"{models}/images", "-q", "-o", compiled[tree]]
                once(make, False, {**base, "PYTHONPATH": str(tree)}, folder)
        for line in [*LINES, *(with_models(models) if args.models else ())]:
            programs = list(columns(line, trees[1] if args.against else None, compiled, base))
            times: dict[str, list[Time]] = {name: [] for name, _, _ in programs}
            for _ in range(args.rounds + 1):
                for name, command, environment in programs:
                    times[name].append(once(command, line.terminal, environment, folder))
            least = {name: min(t.cpu for t in each[1:]) for name, each in times.items()}  # the first fills caches
            cells = [
                f"{name} {median(t.cpu for t in each[1:]):5.0f} [{least[name]:.0f}] "
                f"wall {median(t.wall for t in each[1:]):5.0f} [{min(t.wall for t in each[1:]):.0f}]"
                for name, each in times.items()
            ]
            ratio = f"ratio {least['chai'] / least['peer']:.2f}"
            goal = "" if line.bound is None else f", goal {line.bound:g}"
            print(f"{line.name:32s} {'   '.join(cells)}   {ratio}{goal}", flush=True)


if __name__ == "__main__":
    main()
