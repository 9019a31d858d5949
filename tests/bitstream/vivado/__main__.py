"""Vivado's command line: ``-mode batch -source SCRIPT``. STANDIN_SLACK is the slack of setup."""

from __future__ import annotations

import argparse
import os
import sys
import tkinter
from pathlib import Path

from .design import Refused
from .standin import Vivado


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-mode", choices=["batch"], required=True)
    parser.add_argument("-nojournal", action="store_true")
    parser.add_argument("-source", type=Path, required=True)
    vivado = Vivado(slack=(float(os.environ.get("STANDIN_SLACK", "0.2")), 0.05))
    vivado.said = Told(["****** Vivado"])
    try:
        vivado.run(parser.parse_args().source.resolve())
    except (Refused, tkinter.TclError) as error:
        print(f"ERROR: {error}")
        return 1
    return 0


class Told(list[str]):
    """Lines that are printed when they come."""

    def append(self, line: str) -> None:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
