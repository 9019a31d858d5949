"""The ``chai`` command; also ``python -m chai``."""

from __future__ import annotations

import signal
import sys

from . import cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main(command: Callable[[list[str]], int] = cli.main) -> None:
    """Run a command line and exit with its code. SIGTERM and SIGHUP end it as sys.exit does: what is open is closed."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # not every system has both
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup lets SIGHUP be ignored
            signal.signal(number, _end)
    sys.exit(command(sys.argv[1:]))


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
