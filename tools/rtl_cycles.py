"""Compare the cycles of a network's Tasks in the RTL with those of the cycle model.

``python tools/rtl_cycles.py googlenet_nolrn weights.caffemodel --batch 2`` simulates one pass (minutes) and prints, for each
engine in order, every Task: cycles from the end of the Task before it to its own, how many of them multiplied, and the
others by reason. Engines overlap, so the columns of both do not add up.
"""

from __future__ import annotations

import argparse

import numpy as np

import chai
from chai.codegen.chain import Chain
from chai.codegen.compile import chain
from chai.devices.rtlsim import program
from chai.devices.rtlsim.simulation import Activity
from chai.offload.schedule import DeviceStep

ENGINES = ("array", "window")


def main() -> None:
    """Simulate a pass and print its Tasks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("network", help="prototxt or a shipped network")
    parser.add_argument("weights", nargs="?", help="caffemodel")
    parser.add_argument("--overlay", default=chai.overlay.default, help="overlay (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1, help="images (default: 1)")
    options = parser.parse_args()
    net = chai.Net(options.network, options.weights, batch=options.batch, device="rtlsim", overlay=options.overlay)
    (name,) = net.inputs
    images = np.random.default_rng(0).random(net.shapes[name]).astype(np.float32)
    net.calibrate(images)
    simulated = program.accelerator(chai.overlay.load(options.overlay))
    monitors = {engine: simulated.simulation.monitor(engine) for engine in ENGINES}
    net.forward(images)
    done = {engine: [*monitor] for engine, monitor in monitors.items()}
    for step in net.schedule.steps:
        if isinstance(step, DeviceStep) and step.tasks:
            shapes, views = net.offload.plan.device_shapes, net.schedule.views
            made = chain(step.work(simulated.overlay, shapes, views))
            print(f"segment of {len(made.tasks)} Tasks: model {made.cycles:,} cycles")
            rows(made, done)
    print(f"cycles of the last segment in the RTL: {simulated.registers.cycles():,}")


def rows(made: Chain, done: dict[str, list[Activity]]) -> None:
    """Print the Tasks of a chain, of each engine in its order, and take theirs from the front of ``done``."""
    reasons = Activity._fields[1:]
    print(" ".join(f"{word:>12}" for word in ("engine", "model", "rtl", *reasons)), " Task")
    for engine, ends in done.items():
        mine = [task for task in made.tasks if task.engine == engine]
        for i, task in enumerate(mine):
            found = ends.pop(0)
            took = sum(found[1:]) - (0 if i else found.idle)  # before the first one it waits for the host
            counts = [task.cycles(made.overlay, made.shapes), took, *found[1:]]
            print(f"{engine:>12}", *(f"{count:>12,}" for count in counts), f" {task.kind} {'+'.join(task.origin)}")


if __name__ == "__main__":
    main()
