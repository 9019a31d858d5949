"""Count the instructions of a network's passes: runs on the Arm processor, under qemu with insn.c.

The clock is replaced by the count of instructions before chai is imported, so that the times of a pass are counts.
"""

from __future__ import annotations

import json
import mmap
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

Count = Callable[[], int]
Row = tuple[str, str, int]  # kind, name, instructions
BRANCHES = "branches"  # of an Execution: whether a pass runs in two lanes
PER_MS = 1e-3  # instructions in a millisecond of a clock whose seconds they are
INTERVAL = 10.0  # seconds after which a thread lets another one run: Python's 5 ms are of a board, qemu takes 100 times as long


def counter(path: Path) -> Count:
    """Return a function that reads the count of instructions so far."""
    with open(path, "r+b") as file:
        view = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
    return partial(view.__getitem__, 0)  # a call in C: it costs about as much as a look at a clock


class Moves:
    """Rows of what moves blobs into the board's buffers and out of them while a Program runs.

    Elsewhere moves belong to the step that calls them: a Pack or an Unpack.
    """

    def __init__(self, count: Count) -> None:
        self.count, self.rows, self.running = count, list[Row](), False

    def program(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a Program's ``run`` in which moves are counted."""

        @wraps(run)
        def wrapper(*arguments: Any) -> Any:
            self.running = True
            try:
                return run(*arguments)
            finally:
                self.running = False

        return wrapper

    def move(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that moves a blob into or out of the board's memory, and adds a row with its sizes."""

        @wraps(method)
        def wrapper(blob: Any, *rest: Any) -> Any:
            begin = self.count()
            result = method(blob, *rest)
            if self.running:
                self.rows.append((method.__name__, "x".join(map(str, blob.shape)), self.count() - begin))
            return result

        return wrapper


@contextmanager
def wrapped(owner: object, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Wrap a method or a module's function inside the context, if there is one."""
    method = getattr(owner, name, None)
    if method is not None:
        setattr(owner, name, wrap(method))
    try:
        yield
    finally:
        if method is not None:
            setattr(owner, name, method)


def passes(net: Any, job: dict[str, Any], count: Count) -> Iterator[list[Row]]:
    """Yield the rows of each measured pass of a network.

    Rows are of passes in one thread, so that each count has one owner. Where independent branches run in two, the row
    "lanes" is what such a pass takes beyond that.
    """
    import numpy as np

    from chai.devices.pynq.program import PynqProgram
    from chai.kernels import device_blobs
    from chai.report.host_work import rows_of

    random = np.random.default_rng(0)
    feeds = {blob: random.uniform(-100, 100, net.shapes[blob]).astype(np.float32) for blob in net.inputs}
    moves = Moves(count)

    def run() -> None:
        moves.rows.clear()
        net.forward(**feeds)

    lanes = [*repeated("pass in two threads", run, job, count)] if in_two_lanes(net) else []
    vars(net.offload)[BRANCHES] = False
    with (
        wrapped(PynqProgram, "run_in", moves.program),
        wrapped(device_blobs, "store", moves.move),
        wrapped(device_blobs, "fetch", moves.move),
    ):
        for i, whole in enumerate(repeated("pass", run, job, count)):
            rows = rows_of(net.perf, moves.rows, whole, PER_MS)
            yield [*rows, ("lanes", "two threads", lanes[i] - whole)] if lanes else rows


def in_two_lanes(net: Any) -> bool:
    """Return whether a pass runs independent branches of host and overlay in two threads."""
    from chai.runtime.execution import Execution

    if not hasattr(Execution, BRANCHES):
        raise SystemExit(f"{__file__}: {BRANCHES} does not say whether a pass runs in two lanes")
    return bool(getattr(net.offload, BRANCHES))


def pictures(net: Any, job: dict[str, Any], count: Count) -> Iterator[list[Row]]:
    """Yield the row of reading a picture and making codes for the network of it, several times."""
    from chai.fixed import Format

    format = Format("DynamicFixed", 8, 0)
    for whole in repeated("picture", lambda: net.pictures([job["picture"]]).codes(format), job, count):
        yield [("picture", Path(job["picture"]).name, whole)]


def repeated(what: str, run: Callable[[], object], job: dict[str, Any], count: Count) -> Iterator[int]:
    """Yield the instructions of each run after the first ones, which warm up; show progress."""
    times = job["warm"] + job["repeat"]
    for i in range(times):
        begin = count()
        run()
        whole = count() - begin
        print(f"{what} {i + 1} of {times}: {whole / 1e6:.1f} M", file=sys.stderr, flush=True)
        if i >= job["warm"]:
            yield whole


def main() -> None:
    """Do the job in the first argument, and print its rows for every pass as JSON; the second is the counter's file."""
    job, path = json.loads(sys.argv[1]), Path(sys.argv[2])
    sys.setswitchinterval(INTERVAL)
    count = counter(path)
    time.perf_counter = count
    import chai
    from chai.devices.pynq import finding

    finding.LOCKS = path.parent  # this board is nobody else's
    with chai.Net(job["network"], device="null" if job["picture"] else "pynq", overlay=job["overlay"]) as net:
        counts = pictures(net, job, count) if job["picture"] else passes(net, job, count)
        print(json.dumps({"batch": net.batch, "passes": [*counts]}))


if __name__ == "__main__":
    main()
