"""Compare the cycles of a network's Tasks in the RTL with those of the cycle model.

``python tools/rtl_cycles.py googlenet_nolrn weights.caffemodel --batch 2`` simulates one pass (minutes) and prints, for each
engine in order, every Task: cycles from the end of the Task before it to its own, how many of them multiplied, and the
others by reason. Engines overlap, so the columns of both do not add up.

``--bytes-per-cycle``, ``--latency`` and ``--ports`` change what is simulated, not the plan, which the manifest's numbers made.
``--grid`` simulates the pass at each of several rates and latencies, and prints its cycles alone.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from unittest.mock import patch

import numpy as np

import chai
from chai.codegen.chain import Chain
from chai.codegen.compile import chain
from chai.devices.rtlsim import program
from chai.devices.rtlsim.simulation import Activity
from chai.offload.schedule import DeviceStep
from chai.overlay import Overlay

ENGINES = ("array", "window")


RATES, LATENCIES = (8.0, 10.0, 15.0), (50, 150, 300)  # of the grid


def main() -> None:
    """Simulate a pass and print its Tasks."""
    options = arguments()
    net = chai.Net(options.network, options.weights, batch=options.batch, device="rtlsim", overlay=options.overlay)
    (name,) = net.inputs
    images = np.random.default_rng(0).random(net.shapes[name]).astype(np.float32)
    net.calibrate(images)
    overlay = chai.overlay.load(options.overlay)
    if options.grid:
        print(f"bytes/cycle {' '.join(f'{latency:>7} cycles' for latency in LATENCIES)}")
        for rate in RATES:
            ones = (simulated(overlay, options.ports, rate, latency) for latency in LATENCIES)
            print(f"{rate:>11g}", *(f"{passed(net, one, images):>14,}" for one in ones), flush=True)
        return
    one = simulated(overlay, options.ports, options.bytes_per_cycle, options.latency)
    monitors = {engine: one.simulation.monitor(engine) for engine in ENGINES}
    cycles = passed(net, one, images)
    done = {engine: [*monitor] for engine, monitor in monitors.items()}
    for step in net.schedule.steps:
        if isinstance(step, DeviceStep) and step.tasks:
            shapes, views = net.offload.plan.device_shapes, net.schedule.views
            segment = chain(step.work(overlay, shapes, views))
            print(f"segment of {len(segment.tasks)} Tasks: model {segment.cycles:,} cycles")
            rows(segment, done)
    print(f"cycles of the last segment in the RTL: {cycles:,}")


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("network", help="prototxt or a shipped network")
    parser.add_argument("weights", nargs="?", help="caffemodel")
    parser.add_argument("--overlay", default=chai.overlay.default, help="overlay (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1, help="images (default: 1)")
    parser.add_argument("--bytes-per-cycle", type=float, help="of memory (default: the manifest's)")
    parser.add_argument(
        "--latency", type=int, help="cycles from an address to its first beat (default: the manifest's)"
    )
    parser.add_argument(
        "--ports",
        default="manifest",
        help="whose room for bursts: manifest, none, or an overlay (default: %(default)s)",
    )
    parser.add_argument("--grid", action="store_true", help="print the cycles at several rates and latencies")
    return parser.parse_args()


def simulated(overlay: Overlay, ports: str, rate: float | None, latency: int | None) -> program.Simulated:
    """Return a new accelerator of an overlay at such a memory."""
    of = overlay if ports == "manifest" else chai.overlay.load(ports) if ports != "none" else None
    port = of.memory_port if of else None
    memory = replace(
        overlay, memory_port=port, memory_mb_per_s=(rate or 0) * overlay.clock_mhz or overlay.memory_mb_per_s
    )
    return program.Simulated(memory, latency=(latency, latency) if latency else None)


def passed(net: chai.Net, one: program.Simulated, images: np.ndarray) -> int:
    """Return the cycles of the last segment of a pass on that accelerator."""
    with patch.object(program, "accelerator", lambda _: one):
        net.forward(images)
    return one.registers.cycles()


def rows(segment: Chain, done: dict[str, list[Activity]]) -> None:
    """Print the Tasks of a chain, of each engine in its order, and take theirs from the front of ``done``."""
    reasons = Activity._fields[1:]
    print(" ".join(f"{word:>12}" for word in ("engine", "model", "rtl", *reasons)), " Task")
    for engine, ends in done.items():
        mine = [task for task in segment.tasks if task.engine == engine]
        for i, task in enumerate(mine):
            activity = ends.pop(0)
            took = sum(activity[1:]) - (0 if i else activity.idle)  # before the first one it waits for the host
            counts = [task.cycles(segment.overlay, segment.shapes), took, *activity[1:]]
            print(f"{engine:>12}", *(f"{count:>12,}" for count in counts), f" {task.kind} {'+'.join(task.origin)}")


if __name__ == "__main__":
    main()
