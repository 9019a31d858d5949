"""Measure a host model on a board, by its clock: ``chai devices --measure``."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import chai

from ...devices.base import Device
from ...errors import UsageError
from ...images.sample import sample
from ...kernels import device_blobs
from ...net import Net
from ...offload.cost import conversion_counts
from ...overlay import Overlay
from ...overlay.host_model import FLUSH, LANES, LOAD, NANOSECONDS, PICTURE, SEGMENT, STORE
from ...overlay.layout import DeviceBlob, blob_bytes
from ...report.host_speed import PICTURE_SIZE
from ...report.host_work import host_work, medians, rows_of, summed
from ...tasks.work import Work
from ...util.lazy_numpy import np
from .fit import GUESSED, HostSample, fitted, samples
from .probes import PACKED, HostProbe, probes

WARM, REPEAT = 2, 9  # passes; the first ones prepare what later ones use
PER_MS = 1e6  # nanoseconds
MEASURED = "measured"
PICTURED = "googlenet"  # the network whose input the picture becomes
SIZES = 1 << 12, 1 << 16, 1 << 20  # bytes of buffers whose caches are flushed


def check(device: Device) -> None:
    """Raise UsageError for a device that is no board."""
    if device.word or not device.placed:
        hint = "run it on a board, whose device is pynq; chai show --overlay has modelled figures"
        raise UsageError(f"device {device.name} is no board: what this computer takes says nothing of one", hint=hint)


def networks() -> list[HostProbe]:
    """Return the networks whose passes are timed: those without a second thread, whose times would be of both."""
    return [probe for probe in probes() if not probe.name.startswith(LANES)]


STEPS = 2 + len(networks())


def measure(device: Device, overlay: Overlay) -> Iterator[list[HostSample]]:
    """Yield samples in nanoseconds: of buffers, of a picture, and of each of ``networks``. Raises the errors of the device."""
    opened = device.compile(Work(overlay, [], {}))  # as long as it is, no network downloads the bitstream again
    try:
        flushes = [*_flushes(device, overlay)]
        flush = fitted(flushes, MEASURED)["driver"].get(FLUSH, {})
        yield [*flushes, *_moves(overlay)]
        with TemporaryDirectory(prefix="chai-") as name:
            folder = Path(name)
            yield [*_picture(overlay, folder)]
            for probe in networks():
                yield [*_passes(device, overlay, probe, folder, flush)]
    finally:
        opened.close()
        device.leave()


def section(device: Device, overlay: Overlay, some: list[HostSample]) -> dict[str, Any]:
    """Return the host model of samples in nanoseconds."""
    name = dict(device.about(overlay)).get("board", device.name)
    return {
        "machine": platform.machine(),
        "processor": platform.processor() or platform.machine(),
        "board": "".join(letter if " " <= letter <= "~" else "?" for letter in name)[:80] or "?",
        "unit": NANOSECONDS,
        "assumed": [],
        "sources": {
            MEASURED: f"chai {chai.__version__} devices --measure: medians of {REPEAT} passes by the board's clock",
            GUESSED: "medians of the types of layer that were measured",
        },
        **fitted(some, MEASURED),
    }


def _passes(
    device: Device, overlay: Overlay, probe: HostProbe, folder: Path, flush: dict[str, float]
) -> Iterator[HostSample]:
    """Yield the samples of a network's passes; what its segments take without flushing caches."""
    with Net(*probe.write(folder), device, overlay=overlay.path, batch=1, engine=probe.engine or None) as net:
        random = np.random.default_rng(0)
        feeds = {blob: random.uniform(-100, 100, net.shapes[blob]).astype(np.float32) for blob in net.inputs}
        net.calibrate(feeds)
        passes = []
        for _ in range(WARM + REPEAT):
            begin = perf_counter()
            net.forward(**feeds)
            whole = (perf_counter() - begin) * 1000 * PER_MS
            passes.append(rows_of(net.perf, [], whole, PER_MS))
        chains = [*net.schedule.compiled(net.offload.overlay, net.offload.plan.device_shapes)]
        work = host_work(net.offload, chains)
        segments = [step for step in net.perf.steps if step.kind == "fpga"]
    flushed = summed(work, "driver", FLUSH)
    apart = sum(flushed[name] * number for name, number in flush.items() if name != "source")
    if any(step.device_ms is None for step in segments):  # one that counts nothing takes what it is modelled to
        apart += sum(chain.cycles for chain in chains) / (overlay.clock_mhz * 1000) * PER_MS
    for one in samples(work, medians(passes[WARM:])):
        if one.kind != SEGMENT:
            yield one
        elif not summed(work, "driver", STORE):  # else moving codes is part of it, which is measured apart
            yield one._replace(amount=max(one.amount - apart, 1.0))


def _flushes(device: Device, overlay: Overlay) -> Iterator[HostSample]:
    """Yield what flushing and invalidating the caches of buffers takes."""
    if overlay.coherent:
        return
    for size in SIZES:
        memory = device.buffers(overlay, size)
        for call in (memory.flush, memory.invalidate):
            ns = _ns(call, [0], before=partial(memory.bytes[0].fill, 1))
            yield HostSample("driver", FLUSH, {"call": 1, "element": size}, ns)
        memory.free()


def _moves(overlay: Overlay) -> Iterator[HostSample]:
    """Yield what moving codes into memory of the overlay's layout and out of it takes."""
    for c, h, w in PACKED:
        shape = 1, c, h, w
        codes = np.ones(shape, np.int8)
        blob = DeviceBlob(np.zeros(blob_bytes(shape, overlay.layout), np.uint8), overlay.layout, c, shape)
        counts = conversion_counts(shape, shape, overlay.layout)
        yield HostSample("driver", STORE, counts, _ns(device_blobs.store, codes, blob))
        yield HostSample("driver", LOAD, counts, _ns(device_blobs.fetch, blob, codes))


def _picture(overlay: Overlay, folder: Path) -> Iterator[HostSample]:
    """Yield what reading a picture and making the numbers of a network's input takes."""
    path = sample(folder, *map(int, PICTURE_SIZE.split("x")))
    with Net(PICTURED, device="null", overlay=overlay.path) as net:
        yield HostSample("driver", PICTURE, {"call": 1}, _ns(lambda: net.pictures([path]).floats()))


def _ns(call: Callable[..., object], *arguments: Any, before: Callable[[], object] = lambda: None) -> float:
    """Return the median of a call's nanoseconds; ``before`` each there is something that is not timed."""
    times = []
    for _ in range(WARM + REPEAT):
        before()
        begin = perf_counter()
        call(*arguments)
        times.append((perf_counter() - begin) * 1000 * PER_MS)
    return median(times[WARM:])
