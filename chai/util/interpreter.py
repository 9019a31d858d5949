"""Python's interpreter: start processes that run code of chai, say how one ended, put off looking for garbage, know signals."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise

# variables that limit the threads of libraries which numpy may use
THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
FROZEN_BY_PYTHON = 1000  # objects, at most: 3.12 begins with hundreds of its own; a program freezes thousands


class Uncollected:
    """A context that makes many objects that stay: looking for garbage among them would take a tenth of its time.

    Afterwards they are as old as objects that were looked at several times. Nothing stays frozen.
    """

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._collecting and gc.get_freeze_count() < FROZEN_BY_PYTHON:  # else the program has frozen its own objects
            gc.freeze()
            gc.unfreeze()
        if self._collecting:
            gc.enable()


def command(module: str) -> list[str]:
    """Return the command that runs ``main`` of a module in a new interpreter with this one's path.

    ``-m`` would put the current folder first, where files could shadow modules.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()"]


def ending(code: int) -> str:
    """Return how a process ended, from its exit code: "by SIGKILL", "with exit code 3"."""
    from signal import Signals

    return f"by {Signals(-code).name}" if code < 0 else f"with exit code {code}"


def from_signal_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised an exception.

    A handler in Python is called with the signal's number and the frame that it interrupts, which is its caller's, too.
    """
    from inspect import getargvalues  # which most programs do without

    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        names, several, _, values = getargvalues(frame)
        arguments = [*map(values.get, names), *(values.get(several, ()) if several else ())]
        for number, interrupted in pairwise(arguments):
            if isinstance(number, int) and interrupted is not None and interrupted is frame.f_back:
                return True
    return False
