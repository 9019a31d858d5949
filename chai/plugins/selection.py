"""Choose the implementation of a type that runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from ..env import env
from ..util.files import complete, locked
from ..util.log import logger
from .compiling import available
from .definition import CustomType, Implementation

log = logger("chai.custom")
ROUNDS = 5


def eligible(custom: CustomType, x: Any, codes: bool) -> list[Implementation]:
    """Return implementations for this call, the best first; ``codes``: its inputs are the overlay's codes."""
    fit = [i for i in custom.implementations if (i.dtype == "int8") == codes and (i.when is None or i.when(x))]
    slow = not available()  # then loops are of plain Python, slower than numpy
    return sorted(fit, key=lambda i: (slow and i.jit, -i.priority))


def reason(custom: CustomType, fit: Sequence[Implementation]) -> str:
    """Return the name of the first of ``fit``, with the reason why it runs."""
    chosen = fit[0]
    others = [i.name for i in custom.implementations if i is not chosen]
    passed_over = any(i.priority >= chosen.priority and i.jit > chosen.jit for i in fit)
    why = "no numba here" if passed_over and not available() else f"priority {chosen.priority}"
    return f"{chosen.name} ({why}; others: {', '.join(others)})"


def fastest(key: str, fit: Sequence[Implementation], run: Callable[[Implementation], Any]) -> Implementation:
    """Return the fastest of ``fit``; ``run`` computes once, on separate buffers.

    It is remembered in a file, JSON of {"key": {"fastest": name, "ms": {name: milliseconds}}}. A key has the type, the
    hash of its code and the sizes, so an old entry is never wrong, only unused.
    """
    file = Path(env().cache, "tune.json")
    names = {i.name: i for i in fit}
    entry: Any = _read(file).get(key)
    if not _sound(entry, list(names)):
        times = {i.name: _median(partial(run, i)) for i in fit}
        entry = {"fastest": min(times, key=lambda n: times[n]), "ms": times}
        _write(file, key, entry)
    return names[entry["fastest"]]


def _read(file: Path) -> dict[str, Any]:
    try:
        entries = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _write(file: Path, key: str, entry: Any) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # other processes and threads may have added theirs while this one was tuning
        with locked(file.with_suffix(".lock")), complete(file) as part:
            part.write_text(json.dumps({**_read(file), key: entry}, indent=1))
    except OSError as error:
        log.warning("%s cannot be written, the next process tunes again: %s", file, error)


def _sound(entry: Any, names: list[str]) -> bool:
    """Return whether an entry of the file is valid for these implementations."""
    if not isinstance(entry, dict) or entry.get("fastest") not in names:
        return False
    times = entry.get("ms")
    return isinstance(times, dict) and all(isinstance(ms, float) for ms in times.values())


def _median(run: Callable[[], Any]) -> float:
    """Return the median time of a few runs in milliseconds, after one that is not counted."""
    run()
    times = []
    for _ in range(ROUNDS):
        begin = perf_counter()
        run()
        times.append((perf_counter() - begin) * 1000)
    return sorted(times)[ROUNDS // 2]
