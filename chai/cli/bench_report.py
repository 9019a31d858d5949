"""Print the figures of chai bench as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blob import show
from . import output

NOISE = 0.1  # difference of the two halves of a run, and slow-down since the last one, that is worth a remark


def described(run: Mapping[str, Any]) -> str:
    """Return batch and threads of a run."""
    return f"batch {run['batch']}, {run['threads']} thread{'s' * (run['threads'] > 1)}"


def report(figures: Mapping[str, Any]) -> None:
    """Print a table for each number of threads and batch, and one for starts."""
    size = ", ".join(f"{blob} {show(tuple(shape))}" for blob, shape in figures["inputs"].items())
    device = f"device {figures['device']} ({figures['kernels']})"
    output.result(f"{figures['network']}   {size}   {device}   {figures['processor']}   load {figures['load']:.1f}")
    rounds = figures["rounds"]
    output.result(f"ms per image; {rounds} interleaved rounds, each follows each other one equally often")
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
    """Print the times of processes, and their memory."""
    output.result("", f"processes with compiled byte code, batch 1, {threads} thread{'s' * (threads > 1)}:")
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
