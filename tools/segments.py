"""Count the segments of networks on an overlay, without some of its units and with them.

    python tools/segments.py yolov5n.onnx enet.prototxt ... [--overlay pynq-z2] [--without tables] [--shape 1x3x224x224]
    python tools/segments.py yolov5n.onnx enet.prototxt ... --before CHECKOUT

The units are ``tables`` of codes, ``slopes`` of PReLU, ``maps``: products, maxima, vectors and upsampling, and ``squares`` of
interleaved pixels; by default the first count is without all of them. With --before it is that of another checkout of chai.
Prints a row for each network, before -> after: segments, conversions, host layers between segments, and modelled milliseconds of
the overlay alone, of the board's processor, least to most, and of both in ``net.stream``, where they work at the same time.
Weights are random where a file has none: counts need only sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chai import overlay as overlays

UNITS = {"tables": ("lookup",), "slopes": ("prelu",), "maps": ("vector",), "squares": ()}  # the limits that say so


def without_units(name: str, folder: Path, units: Collection[str]) -> Path:
    """Return the manifest of an overlay without these units, written to a folder."""
    manifest: dict[str, Any] = json.loads(overlays.load(name).path.read_text())
    tasks = manifest["tasks"]
    for limits in tasks.values():
        for limit in (limit for unit in units for limit in UNITS[unit]):
            limits.pop(limit, None)
    if "maps" in units:
        tasks["eltwise"]["operations"] = ["SUM"]
        tasks.pop("upsample", None)
    if {"maps", "squares"}.intersection(units):
        tasks.pop("interleave", None)
    path = folder / "overlay.json"
    path.write_text(json.dumps(manifest))
    return path


def shown(network: Path, overlay: str, shape: Sequence[str], checkout: Path | None = None) -> dict[str, Any]:
    """Return what ``chai show --json`` says of a network on an overlay; by the chai of ``checkout``, or by the installed one."""
    line = [sys.executable, "-m", "chai", "show", str(network.resolve()), "--overlay", overlay, "--json"]
    own = {**os.environ, "PYTHONPATH": str(checkout.resolve())} if checkout else None
    done = subprocess.run([*line, *shape], capture_output=True, text=True, check=False, env=own, cwd=checkout)
    if done.returncode:
        raise SystemExit(f"{network}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def row(network: Path, plans: Sequence[dict[str, Any]]) -> str:
    """Return a network's row of the table."""
    pairs = [
        [plan["segments"] for plan in plans],
        [len(plan["conversions"]) for plan in plans],
        [sum(len(split["layers"]) for split in plan["splits"]["by_reason"]) for plan in plans],
        [f"{1000 / plan['modelled_fps']:.1f}" if plan["modelled_fps"] else "-" for plan in plans],
    ]
    hosts = [plan["host"]["alone"] for plan in plans]
    pairs.append(["{:.1f} to {:.1f}".format(*host["ms"]) for host in hosts])
    pairs.append(["{:.1f} to {:.1f}".format(*sorted(1000 / fps for fps in host["overlapping"])) for host in hosts])
    cells = " | ".join(f"{before} -> {after}" for before, after in pairs)
    rest = ", ".join(dict.fromkeys(split["reason"] for split in plans[1]["splits"]["by_reason"]))
    return f"| {network.stem} | {cells} | {rest} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="+", type=Path)
    parser.add_argument("--overlay", default="pynq-z2")
    first = parser.add_mutually_exclusive_group()
    first.add_argument("--without", nargs="+", choices=UNITS, default=list(UNITS))
    first.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--shape", action="append", default=[])
    args = parser.parse_args()
    shape = [word for each in args.shape for word in ("--shape", each)]
    counts, times = ("segments", "conversions", "host layers between"), ("overlay", "processor", "both")
    print("| network", *counts, *(f"{time}, ms" for time in times), "what splits it still |", sep=" | ")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with TemporaryDirectory() as folder:
        before = args.overlay if args.before else str(without_units(args.overlay, Path(folder), args.without))
        for network in args.networks:
            plans = [shown(network, before, shape, args.before), shown(network, args.overlay, shape)]
            print(row(network, plans), flush=True)


if __name__ == "__main__":
    main()
