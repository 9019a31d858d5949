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
BRANCHES = "_branches"  # of an Execution: whether a pass runs in two lanes
INTERVAL = 10.0  # seconds after which a thread lets another one run: Python's 5 ms are of a board, qemu takes 100 times as long


def counter(path: Path) -> Count:
    """Return a function that reads the count of instructions so far."""
    with open(path, "r+b") as file:
        view = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
    return partial(view.__getitem__, 0)  # a call in C: it costs about as much as a look at a clock


@contextmanager
def counted(owner: Any, name: str, count: Count, calls: list[Row]) -> Iterator[None]:
    """Append a row to ``calls`` for each call of a method that takes a blob first, if there is such a method."""
    method = getattr(owner, name, None)
    if method is None:  # buffers are written and read in Pack and Unpack
        yield
        return

    @wraps(method)
    def wrapper(self: Any, blob: str, *rest: Any) -> Any:
        begin = count()
        result = method(self, blob, *rest)
        calls.append((name, blob, count() - begin))
        return result

    setattr(owner, name, wrapper)
    try:
        yield
    finally:
        setattr(owner, name, method)


def rows_of(times: Any, calls: list[Row], whole: int) -> list[Row]:
    """Return the rows of a pass of ``whole`` instructions: its steps, moves of blobs, and what is around them.

    A segment without its moves is the driver's own Python.
    """
    rows = []
    moved = sum(number for *_, number in calls)
    for step in times.steps:
        kind = step.kind if step.kind != "host" else step.type
        rows.append((kind, step.name, round(step.ms / 1000)))
    driver = [number for kind, _, number in rows if kind == "fpga"]
    rows = [row for row in rows if row[0] != "fpga"] + calls
    rows.append(("driver", f"{len(driver)} segments", sum(driver) - moved))
    rows.append(("feed", "before the first step", round(times.feed_ms / 1000)))
    rows.append(("between", "between steps", round(times.between_ms / 1000)))
    rows.append(("call", "around the pass", whole - sum(number for *_, number in rows)))
    return rows


def passes(job: dict[str, Any], count: Count) -> Iterator[list[Row]]:
    """Yield the rows of each measured pass of a network.

    Rows are of passes in one thread, so that each count has one owner. Where independent branches run in two, the row
    "lanes" is what such a pass takes beyond that.
    """
    import numpy as np

    import chai
    from chai.codegen.chain import Chain

    random = np.random.default_rng(0)
    calls: list[Row] = []
    with chai.Net(job["network"], device="pynq", overlay=job["overlay"]) as net:
        feeds = {blob: random.uniform(-100, 100, net.shapes[blob]).astype(np.float32) for blob in net.inputs}

        def run(what: str) -> Iterator[int]:
            for i in range(job["warm"] + job["repeat"]):
                calls.clear()
                begin = count()
                net.forward(**feeds)
                whole = count() - begin
                say(f"{what} {i + 1} of {job['warm'] + job['repeat']}: {whole / 1e6:.1f} M")
                if i >= job["warm"]:
                    yield whole

        lanes = [*run("pass in two lanes")] if in_two_lanes(net) else []
        vars(net.offload)[BRANCHES] = False
        with counted(Chain, "store", count, calls), counted(Chain, "load", count, calls):
            for i, whole in enumerate(run("pass")):
                rows = rows_of(net.perf, calls, whole)
                yield [*rows, ("lanes", "two threads", lanes[i] - whole)] if lanes else rows


def in_two_lanes(net: Any) -> bool:
    """Return whether a pass runs independent branches of host and overlay in two threads."""
    from chai.runtime.execution import Execution

    if not hasattr(Execution, BRANCHES):
        raise SystemExit(f"{__file__}: {BRANCHES} does not say whether a pass runs in two lanes")
    return bool(getattr(net.offload, BRANCHES))


def pictures(job: dict[str, Any], count: Count) -> Iterator[list[Row]]:
    """Yield the row of reading and preparing a picture."""
    import chai

    with chai.Net(job["network"], device="null", overlay=job["overlay"]) as net:
        for i in range(job["warm"] + job["repeat"]):
            begin = count()
            net.preprocess([job["picture"]])
            number = count() - begin
            say(f"picture {i + 1} of {job['warm'] + job['repeat']}: {number / 1e6:.1f} M")
            if i >= job["warm"]:
                yield [("picture", Path(job["picture"]).name, number)]


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Do the job in the first argument, and print its rows for every pass as JSON."""
    job = json.loads(sys.argv[1])
    sys.setswitchinterval(INTERVAL)
    count = counter(Path(job["counter"]))
    time.perf_counter = count
    done = pictures(job, count) if job["picture"] else passes(job, count)
    print(json.dumps([*done]))


if __name__ == "__main__":
    main()
