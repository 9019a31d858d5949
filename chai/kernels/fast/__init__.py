"""The emulator's kernels: a file named like one of ``chai/tasks`` has a ``kernel(task)`` that is faster than ``define``.

A kernel gives the codes of the Task's definition bit for bit: sums are exact in float32 because no accumulator reaches
2^24. A kind without a file here, or a Task for which ``kernel`` returns None, runs by its definition.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ...util.lazy_numpy import np

if TYPE_CHECKING:
    from ...tasks import Task

    Kernel = Callable[..., None]  # inputs, output, scratch


def kernel(task: Task) -> Kernel:
    """Return a function that computes a Task into the output it is called with."""
    stem = type(task).__module__.rpartition(".")[2]
    if any((Path(folder) / f"{stem}.py").exists() for folder in __path__):
        fast: Kernel | None = import_module(f".{stem}", __name__).kernel(task)
        if fast is not None:
            return fast
    return lambda *given: np.copyto(given[-2], task.define(*given[:-2]))
