"""Derive the section host_model of manifests from counted passes of small networks, and write it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import chai
from chai import overlay as overlays
from chai.evaluate.host.fit import GUESSED, HostSample, fitted, samples
from chai.evaluate.host.probes import HostProbe, probes
from chai.overlay.host_model import INSTRUCTIONS, PICTURE, layout, of_manifest
from chai.overlay.sections import HOST_MODEL
from chai.report.host_speed import PICTURE_SIZE
from chai.report.host_work import HostWork, host_work
from chai.util.data import jsonfile
from chai.util.files import complete

from .debian import MACHINES, Guest
from .measure import OVERLAYS, Job, measure

PICTURED = "googlenet"  # the network whose input the picture becomes
COUNTED = "counted"


class Clock(NamedTuple):
    """Assumptions: a processor's clock, that of some overlays' boards, and the least and most cycles of an instruction.

    With where each is from.
    """

    processor: str
    mhz: float
    others: Mapping[str, float]
    cycles: tuple[float, float]
    about_clock: str
    about_cycles: str


CLOCKS = {
    "armv7l": Clock(
        "Cortex-A9",
        650,
        {},
        (1.0, 1.7),
        "assumed: that of PYNQ-Z1 and PYNQ-Z2; a ZedBoard has 667 MHz",
        "assumed: of code whose data is in the caches; not counted on a board",
    ),
    "aarch64": Clock(
        "Cortex-A53",
        1200,
        {"kv260": 1333},
        (1.0, 1.7),
        "assumed: 1200 MHz on Ultra96, ZCU102 and ZCU104, 1333 MHz on KV260",
        "assumed: as of the Cortex-A9; not counted on a board",
    ),
}


def fit(root: Path) -> dict[str, dict[str, Any]]:
    """Return the section of each machine, from passes counted under qemu. Raises ChaiError, Failed, Unavailable, OSError."""
    for machine in MACHINES.values():  # one after the other: they share downloads
        Guest(machine, root)
    with TemporaryDirectory(prefix="chai-fit-") as name:
        networks = [(probe, *probe.write(Path(name))) for probe in probes()]
        with ThreadPoolExecutor(len(MACHINES)) as pool:
            every = pool.map(lambda machine: [*_counted(machine, networks, root)], MACHINES)
            counted = dict(zip(MACHINES, every))
    return {machine: section(machine, some) for machine, some in counted.items()}


def _counted(machine: str, networks: Sequence[tuple[HostProbe, Path, Path | None]], root: Path) -> Iterable[HostSample]:
    """Yield the samples of a machine."""
    for probe, path, weights in networks:
        cost = measure(Job(str(path), str(weights) if weights else None, machine, engine=probe.engine or None), root)
        yield from samples(planned(OVERLAYS[machine], path, weights, probe.engine), cost.rows)
    cost = measure(Job(PICTURED, machine=machine, picture=PICTURE_SIZE), root)
    yield HostSample("driver", PICTURE, {"call": 1}, cost.sum)


def planned(
    overlay: str, network: Path | str, weights: Path | None = None, engine: Mapping[str, str] | None = None
) -> list[HostWork]:
    """Return the steps of a network's pass for an overlay."""
    with chai.Net(network, weights, "null", overlay=overlay, batch=1, engine=engine or None) as net:
        net.plan()
        return host_work(net.offload)


def section(machine: str, some: Iterable[HostSample]) -> dict[str, Any]:
    """Return the section of a machine's boards."""
    clock = CLOCKS[machine]
    return {
        "machine": machine,
        "processor": clock.processor,
        "unit": INSTRUCTIONS,
        "clock_mhz": clock.mhz,
        "cycles": [*clock.cycles],
        "assumed": ["clock_mhz", "cycles"],
        "sources": {
            "clock_mhz": clock.about_clock,
            "cycles": clock.about_cycles,
            COUNTED: f"python -m tools.arm_cost --fit: passes of small networks under qemu, {MACHINES[machine].cpu}, one thread",
            GUESSED: "medians of the types of layer that were counted",
        },
        **fitted(some, COUNTED),
    }


def write(sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Write the sections into the shipped manifests that have one, by their boards' machines; return the overlays' names."""
    families = {overlays.load(overlay).family: machine for machine, overlay in OVERLAYS.items()}
    written = []
    for name in overlays.names():
        overlay = overlays.load(name)
        if of_manifest(overlay.path) is None:
            continue
        written.append(name)
        machine = families[overlay.family]
        clock = CLOCKS[machine].others.get(name, CLOCKS[machine].mhz)
        content = {**sections[machine], "clock_mhz": clock}
        text = with_section(overlay.path.read_text(encoding="utf-8"), content)
        with complete(overlay.path) as part:
            part.write_text(text, encoding="utf-8")
    return written


def with_section(text: str, content: Mapping[str, Any]) -> str:
    """Return a manifest's text with this section, in place of the one that it has, else as its last."""
    document = jsonfile.Document(text, "")
    if HOST_MODEL in document.value:
        before, after = text[: document.keys[(HOST_MODEL,)][0]], text[document.values[(HOST_MODEL,)][1] :]
    else:
        before, after = f"{text.rstrip()[:-1].rstrip()},\n  ", "\n}\n"
    return f"{before}{json.dumps(HOST_MODEL)}: {layout(content, 1)}{after}"
