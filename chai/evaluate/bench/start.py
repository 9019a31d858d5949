"""Measure programs in processes of their own: start to the first result, peak memory, and the evenness of their passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import getsource
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any, NamedTuple

from ...errors import UsageError
from .rounds import order

_HEAD = """
import json
import numpy as np
words, shapes, threads, passes = json.loads(sys.argv[1])
feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
"""
_RESULT, _MEMORY = "first result after", "peak and passes"  # begin the lines that are read
_TAIL = (
    f"""
run()
import time
print({_RESULT!r}, time.process_time() * 1000, flush=True)
memory = {_MEMORY!r}
"""
    + """
if passes > 1:
    times = []
    for _ in range(passes):
        begin = time.process_time()
        run()
        times.append((time.process_time() - begin) * 1000)
    peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
    print(memory, json.dumps([peak / 1024, times]))
"""
)
_PASSES = 100


def source(open: Callable[..., Any]) -> str:
    """Return the code of a ``PeerEngine``'s function ``open`` that defines run(), which computes the outputs of one pass."""
    return f"{getsource(open)}\nrun = {open.__name__}(words, feeds, threads)\n"


def _chai(words: Sequence[str], feeds: Mapping[str, Any], _threads: int) -> Callable[[], Any]:
    """Open a network in chai; the first of the ``words`` are options of Net, as JSON."""
    import json

    import chai

    net = chai.Net(*words[1:], **json.loads(words[0]))
    return lambda: net.forward(**feeds)


CHAI = source(_chai)


class MeasuredProgram(NamedTuple):
    """``code`` is what ``source`` returns, ``words`` what it opens, ``shapes`` the inputs' of one image."""

    name: str
    code: str
    words: Sequence[str]
    shapes: Mapping[str, Sequence[int]]
    threads: int

    def command(self, passes: int) -> list[str]:
        """Return the command that runs so many passes, with this interpreter's path: -c puts the current folder first."""
        arguments = json.dumps([self.words, self.shapes, self.threads, passes])
        path = f"from __future__ import annotations\nimport sys\nsys.path[:] = {sys.path!r}\n"
        return [sys.executable, "-c", path + _HEAD + self.code + _TAIL, arguments]


def environment(folder: Path, threads: int, limits: Sequence[str]) -> dict[str, str]:
    """Return the processes' environment: byte code of every module in ``folder``, as an installed package has it.

    ``limits`` are the names of those that limit threads.
    """
    variables = {**os.environ, **dict.fromkeys(limits, str(threads)), "PYTHONPYCACHEPREFIX": str(folder)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def problem(program: MeasuredProgram, variables: Mapping[str, str]) -> str | None:
    """Run a program once and return why it fails, None if it does not.

    It has compiled its byte code then and brought its files into memory.
    """
    try:
        _run(program, variables)
    except UsageError as error:
        return error.message
    return None


def starts(
    programs: Sequence[MeasuredProgram], rounds: int, variables: Mapping[str, str], tell: Callable[[int, int], None]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return wall and CPU time (milliseconds) of processes from their start to their first result, and failures.

    All have run before. A program that fails has no figures, but a reason, and is not run again.
    """
    times: dict[str, list[tuple[float, float]]] = {program.name: [] for program in programs}
    reasons: dict[str, str] = {}
    for number in range(rounds):
        tell(number, rounds)
        for i in order(len(programs), number):
            name = programs[i].name
            if name not in reasons:
                try:
                    wall, results = _run(programs[i], variables)
                    times[name].append((wall, float(results[_RESULT])))
                except UsageError as error:
                    reasons[name] = error.message
    figures = {}
    for name in [name for name in times if name not in reasons]:
        kinds = zip(("wall", "cpu"), zip(*times[name]))
        figures[name] = {kind: {"median": median(each), "min": min(each)} for kind, each in kinds}
    return figures, reasons


def memory(program: MeasuredProgram, variables: Mapping[str, str]) -> dict[str, float]:
    """Return the peak memory (MB of 2^20 bytes, mapped files included) of a process that computes 100 images after its first.

    ``cpu_ms`` is the median of their CPU times, ``slowest`` the largest as a multiple of it. Raises UsageError if it fails.
    """
    _, results = _run(program, variables, _PASSES)
    peak, times = json.loads(results[_MEMORY])
    return {"mb": peak, "cpu_ms": median(times), "slowest": max(times) / median(times)}


def _run(program: MeasuredProgram, variables: Mapping[str, str], passes: int = 1) -> tuple[float, dict[str, str]]:
    """Return the milliseconds from a process's start to its first result, and the rest of each line that is read.

    Raises UsageError if it fails.
    """
    results, begin, ms = dict[str, str](), perf_counter(), 0.0
    command = program.command(passes)
    with (
        TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(
            command, env=dict(variables), stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            for kind in (_RESULT, _MEMORY):
                if line.startswith(kind) and kind not in results:
                    results[kind] = line.removeprefix(kind)
                    ms = ms or (perf_counter() - begin) * 1000
        if code := process.wait():
            errors.seek(0)
            last = (errors.read().strip().splitlines() or [f"exit code {code}"])[-1]
            raise UsageError(f"its process fails: {last[:200]}")
    if _RESULT not in results or (passes > 1 and _MEMORY not in results):
        raise UsageError("its process ends without a result")
    return ms, results
