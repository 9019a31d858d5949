"""Compare start-up times of commands with the time of their unavoidable imports.

    python tools/bench_startup.py [--rounds 21]

Processes are interleaved; medians and ratios are printed. Each command is compared with the imports that any program
would need for the same work, which bounds what chai adds.
"""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import sys
from statistics import median
from time import perf_counter

SCHEMA = "import google.protobuf.descriptor_pool, google.protobuf.message_factory, rich.table, rich.console"
TABLE = (
    SCHEMA + "\nt = rich.table.Table()\nfor c in range(5): t.add_column(str(c))\n"
    "for r in range(142): t.add_row(*(f'cell {r} {c}' for c in range(5)))\nrich.console.Console().print(t)"
)
PAIRS = {  # name: (command, peer, bound, on a terminal)
    "chai --help": (["-m", "chai", "--help"], ["-c", "import argparse"], 1.3, False),
    "chai show googlenet, piped": (["-m", "chai", "show", "googlenet"], ["-c", SCHEMA], 1.5, False),
    "chai show googlenet, terminal": (["-m", "chai", "show", "googlenet"], ["-c", TABLE], 1.5, True),
}


def once(command: list[str], terminal: bool) -> float:
    """Return the milliseconds of one process."""
    full = [sys.executable, *command]
    begin = perf_counter()
    if not terminal:
        subprocess.run(full, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return (perf_counter() - begin) * 1000
    parent, child = pty.openpty()
    with subprocess.Popen(
        full, stdout=child, stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(child)
        try:
            while os.read(parent, 65536):
                pass
        except OSError:
            pass  # the process has closed its end
        process.wait()
    os.close(parent)
    return (perf_counter() - begin) * 1000


def main() -> None:
    """Print one line per pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    for name, (command, peer, bound, terminal) in PAIRS.items():
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds + 1):
            for kept, what in zip(times, (command, peer)):
                kept.append(once(what, terminal))
        ours, theirs = (median(t[1:]) for t in times)
        print(f"{name:30s} {ours:6.1f} ms   peer {theirs:6.1f} ms   ratio {ours / theirs:.2f}   goal {bound}")


if __name__ == "__main__":
    main()
