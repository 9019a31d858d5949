"""Model the speed of the larger boards, and write the table into docs/rtl.md: some minutes.

    python tools/board_speeds.py [--write]

Cycles are those of the cycle model, with random weights. ``tools/rtl_cycles.py`` simulates them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import chai
from chai.codegen.compile import chain
from chai.offload.schedule import DeviceStep

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rtl.md"
BEGIN, END = "<!-- modelled speeds -->\n", "<!-- end of modelled speeds -->"
OVERLAYS = "ultra96", "kv260", "zcu104", "zcu102"
NETWORKS = {
    "googlenet": "GoogLeNet",
    "resnet50": "ResNet-50",
    "squeezenet_v1.1": "SqueezeNet v1.1",
    "mobilenet_v1": "MobileNet v1",
}
IMAGES = 1, 2, 4  # at once


class Speed(NamedTuple):
    """Cycles of some images by the model, images a second, and the share of the array's products that are the network's."""

    cycles: int
    rate: float
    share: float

    def __str__(self) -> str:
        return f"{self.cycles:,}: {self.rate:.0f} ({self.share:.0%})".replace("%", " %")


def speed(network: str, name: str, images: int) -> Speed:
    """Return the speed of a network on an overlay."""
    overlay = chai.overlay.load(name)
    with chai.Net(network, batch=images, device="emulator", overlay=name) as net:
        (blob,) = net.inputs
        net.calibrate(np.random.default_rng(0).random(net.shapes[blob]).astype(np.float32))  # as rtl_cycles.py
        steps = [step for step in net.schedule.steps if isinstance(step, DeviceStep) and step.tasks]
        shapes = net.offload.plan.device_shapes
        cycles = sum(chain(step.work(overlay, shapes, net.schedule.views)).cycles for step in steps)
        products = sum(task.macs(*(shapes[blob] for blob in task.inputs)) for step in steps for task in step.tasks)
    return Speed(cycles, images * overlay.clock_mhz * 1e6 / cycles, products / (overlay.macs * cycles))


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| overlay | images at once | {' | '.join(NETWORKS.values())} |"
    yield "|---" * (2 + len(NETWORKS)) + "|"
    for name in OVERLAYS:
        for images in IMAGES:
            cells = [str(speed(network, name, images)) for network in NETWORKS]
            yield f"| {name} | {images} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="into docs/rtl.md")
    lines = []
    write = parser.parse_args().write
    for line in table():
        print(line, flush=True)
        lines.append(f"{line}\n")
    if write:
        page = PAGE.read_text()
        before, rest = page.split(BEGIN)
        PAGE.write_text(before + BEGIN + "".join(lines) + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
