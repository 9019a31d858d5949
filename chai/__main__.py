"""The ``chai`` command; also ``python -m chai``."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` makes tables of its numbers
import sys

from . import cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """Run the command line and exit with its code. SIGTERM and SIGHUP end it as sys.exit does: what is open is closed."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(_signal, name, None)
        if number is not None and _signal.getsignal(number) == _signal.SIG_DFL:  # nohup lets SIGHUP be ignored
            _signal.signal(number, _end)
    sys.exit(cli.main(sys.argv[1:]))


def _end(number: int, _interrupted: Any) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
