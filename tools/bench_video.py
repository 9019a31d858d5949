"""Measure the throughput of chai.video against its slowest lane, on a device that waits and on the emulator.

    python tools/bench_video.py [--frames 200]

On a device that sleeps for each segment, as a board does, the ideal is the slowest lane: reading, host, device or drawing, each
known here. On the emulator all lanes compute, and the ideal is the cores divided by the processor's time per frame.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
from bench_pipeline import NET

import chai
from chai.devices.base import Ran
from chai.devices.null import NullDevice, NullProgram
from chai.kernels.native.threads import processors
from chai.tasks.work import Work

Frames = list[Any]
WARM = 10  # frames
SLOW, QUICK = 0.02, 0.004  # seconds of a frame in the slowest lane, and in the others


class Lane:
    """A lane that sleeps, and how long it did so for each frame: a busy machine wakes it late."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.slept = seconds, list[float]()

    def __call__(self, *_: Any) -> None:
        begin = perf_counter()
        sleep(self.seconds)
        self.slept.append(perf_counter() - begin)


class WaitingProgram(NullProgram):
    """A program that takes as long as ``lane``."""

    lane = Lane(0)

    def run(self, blobs: dict[str, Any]) -> Ran:
        self.lane()
        return super().run(blobs)


class WaitingDevice(NullDevice):
    """A null device whose segments take time."""

    def compile(self, work: Work) -> WaitingProgram:
        return WaitingProgram(work)


def frames(count: int, height: int, width: int) -> Frames:
    """Return frames of noise, uint8 (H, W, 3)."""
    rng = np.random.default_rng(0)
    some = [rng.integers(0, 256, (height, width, 3), np.uint8) for _ in range(8)]
    return [some[i % 8] for i in range(count)]


def seconds(net: chai.Net, source: Any, draw: Lane) -> tuple[float, float, int]:
    """Return wall and processor seconds from the end of one frame to that of the last, and the frames between."""
    times = []
    with chai.video(net, source) as video:
        for _ in video:
            draw()
            times.append((perf_counter(), process_time()))
    first = times[WARM]  # from here on all lanes have work
    return times[-1][0] - first[0], times[-1][1] - first[1], len(times) - 1 - WARM


def sleeping(lanes: dict[str, Lane]) -> chai.Net:
    """Return a network whose host and device sleep, with its formats."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.prototxt")
        path.write_text(NET)
        net = chai.Net(path, device=WaitingDevice("slow", ""), custom={"wait": lambda _: lanes["host"]()})
    WaitingProgram.lane = lanes["device"]
    net.calibrate(data=np.ones((1, 3, 8, 8), np.float32))
    return net


def lanes_of(slowest: str) -> dict[str, Lane]:
    """Return the four lanes, one of which is slow."""
    return {name: Lane(SLOW if name == slowest else QUICK) for name in ("read", "host", "device", "draw")}


def slow_source(lane: Lane, count: int) -> Any:
    """Yield frames, each after the time of a lane."""
    for frame in frames(count, 8, 8):
        lane()
        yield frame


def waiting(slowest: str, count: int) -> float:
    """Return the share of the slowest lane's rate that a video reaches, on a device and with layers that sleep."""
    lanes = lanes_of(slowest)
    wall, _, passed = seconds(sleeping(lanes), slow_source(lanes["read"], count), lanes["draw"])
    return sum(lanes[slowest].slept[-passed:]) / wall


def age(slowest: str, count: int) -> float:
    """Return the largest age of a drawn frame of a live source at four times the rate, in times of the slowest lane."""
    lanes, ages = lanes_of(slowest), list[float]()
    source = slow_source(Lane(SLOW / 4), 4 * count)
    with chai.video(sleeping(lanes), source, live=True) as video:
        for frame, _ in video:
            lanes["draw"]()
            ages.append(frame.age)
    return max(ages) / max(lanes[slowest].slept)


def computing(name: str, count: int) -> tuple[float, float]:
    """Return the share of cores / processor time per frame on the emulator, and that time in milliseconds."""
    net = chai.Net(name, device="emulator")
    _, _, height, width = net.shapes[net.inputs[0]]
    some = frames(count, height, width)
    list(chai.video(net, some[:10]))
    wall, used, passed = seconds(net, some, Lane(0))
    return used / wall / processors(), used / passed * 1000


def main() -> None:
    """Print each figure as the median of three runs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--frames", type=int, default=200)
    count = parser.parse_args().frames
    for slowest in ("read", "host", "device", "draw"):
        shares = sorted(waiting(slowest, count) for _ in range(3))
        print(
            f"{slowest:<7} {SLOW * 1000:g} ms, others {QUICK * 1000:g} ms: {shares[1]:.3f} of its rate (least {shares[0]:.3f})"
        )
    for slowest in ("host", "device", "draw"):
        print(f"live, {slowest} {SLOW * 1000:g} ms: a frame is {age(slowest, count):.2f} of its times old at most")
    for name in ("yolov2_tiny", "squeezenet_v1.1"):
        runs = sorted(computing(name, count) for _ in range(3))
        least = min(ms for _, ms in runs)
        print(f"emulator, {name}: {runs[1][0]:.3f} of {processors()} processors, {least:.1f} ms of them a frame")


if __name__ == "__main__":
    main()
