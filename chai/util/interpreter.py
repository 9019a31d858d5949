"""Start Python processes that run code of chai, and say how one ended."""

from __future__ import annotations

import sys


def command(module: str) -> list[str]:
    """Return the command that runs ``main`` of a module in a new interpreter with this one's path.

    ``-m`` would put the current folder first, where files could shadow modules.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()"]


def ending(code: int) -> str:
    """Return how a process ended, from its exit code: "by SIGKILL", "with exit code 3"."""
    from signal import Signals

    return f"by {Signals(-code).name}" if code < 0 else f"with exit code {code}"
