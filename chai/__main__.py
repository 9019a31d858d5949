"""The ``chai`` command; also ``python -m chai``."""

from __future__ import annotations

import sys

from . import cli


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
