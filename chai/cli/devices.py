"""chai devices: what networks can run on, here."""

from __future__ import annotations

import argparse
import importlib.util

from .. import devices, overlay
from . import output

EPILOG = ""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def execute(args: argparse.Namespace) -> int:
    """Print every device with its state, and what compiles custom layers."""
    found = []
    for name in devices.names():
        device = devices.open(name)
        usable, state = device.status()
        found.append({"device": name, "usable": usable, "state": state, "summary": device.summary})
    boards = [overlay.load(name) for name in overlay.names()]
    jit = "numba" if importlib.util.find_spec("numba") else "none: custom layers run as plain Python"
    if args.json:
        output.as_json(
            "chai.devices/1",
            devices=found,
            overlays=[
                {"overlay": o.name, "part": o.part, "boards": [b.name for b in o.boards], "title": o.title}
                for o in boards
            ],
            custom_layers=jit,
        )
        return 0
    output.table(
        ["device", "usable", "on", "what"],
        [[str(f["device"]), "yes" if f["usable"] else "no", str(f["state"]), str(f["summary"])] for f in found],
        "llll",
    )
    print()
    rows = [
        [o.name, o.part, f"{o.macs} MAC", f"{o.clock_mhz:g} MHz", ", ".join(b.name for b in o.boards)] for o in boards
    ]
    output.table(["overlay", "part", "per cycle", "assumed", "boards"], rows, "llrrl")
    print()
    print(f"custom layers are compiled by: {jit}")
    return 0
