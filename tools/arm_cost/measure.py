"""Compile a network here, and count its passes on an Arm processor under qemu."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import chai
from chai import overlay as overlays
from chai.artifact import container
from chai.artifact.load import overlay_of
from chai.artifact.save import save
from chai.errors import UsageError
from chai.images.sample import sample
from chai.kernels.native.build import Failed, compiler
from chai.report.host_work import medians
from chai.zoo import is_compiled

from .cost import Cost
from .debian import MACHINES, Guest, Unavailable

HERE = Path(__file__).parent
OVERLAYS = {"armv7l": "pynq-z2", "aarch64": "ultra96"}
WARM, REPEAT = 2, 3  # the first passes prepare what later ones use
SIZE = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})")


@dataclass(frozen=True)
class Job:
    """What to count: passes of a network, or reading a ``picture``, a file or the size of a made-up one, e.g. 640x480.

    Without ``weights`` those of a shipped network that are here, else random ones. ``cpu`` is qemu's name of the processor;
    it and the ``overlay`` are by default those of the machine's boards, the overlay of a .chai that it was compiled for.
    """

    network: str
    weights: str | None = None
    machine: str = "armv7l"
    cpu: str = ""
    overlay: str = ""
    picture: str = ""
    repeat: int = REPEAT
    engine: Mapping[str, str] | None = None


def measure(job: Job, root: Path) -> Cost:
    """Return the cost of a job; ``root`` is the folder of Debians. Raises ChaiError, Failed, Unavailable, OSError."""
    guest = Guest(MACHINES[job.machine], root)
    cpu = job.cpu or guest.machine.cpu
    with TemporaryDirectory(prefix="chai-arm-") as name:
        folder = Path(name)
        manifest = _board(job, folder)
        network = Path(job.network).resolve() if is_compiled(job.network) else _compiled(job, manifest, folder)
        task = {
            "network": str(network),
            "overlay": str(manifest),
            "picture": str(_picture(job.picture, folder)) if job.picture else "",
            "warm": WARM,
            "repeat": job.repeat,
        }
        arguments = "-m", "tools.arm_cost.guest", json.dumps(task)
        done = counted(guest, arguments, folder, [HERE], cpu)  # with the stand-in for pynq
    if done.returncode:
        raise Failed(f"the program under qemu ended with status {done.returncode}; its words are above")
    counts = json.loads(done.stdout)
    return Cost(job.network, job.machine, cpu, manifest.parent.name, counts["batch"], medians(counts["passes"]))


def counted(
    guest: Guest, arguments: Sequence[str], folder: Path, paths: Sequence[Path] = (), cpu: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python in one thread, its last argument the file of the count of instructions; keep what it prints."""
    counter = folder / "count"
    counter.write_bytes(bytes(8))
    return guest.run(
        [*arguments, str(counter)],
        paths=paths,
        env={
            "QEMU_CPU": cpu or guest.machine.cpu,
            "CHAI_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",  # the same sets in the same order each time
            "TMPDIR": str(folder),
        },
        options=["-plugin", f"{plugin(guest, folder)},count={counter}"],
        output=subprocess.PIPE,
    )


def _board(job: Job, folder: Path) -> Path:
    """Return the manifest of the job's overlay, copied beside an empty bitstream. Raises UsageError for an architecture."""
    if is_compiled(job.network):
        overlay = overlay_of(container.read(job.network), job.overlay or None)
    else:
        overlay = overlays.load(job.overlay or OVERLAYS[job.machine])
    if overlay.own is not None:
        raise UsageError(
            f"overlay {overlay.name}: the registers of {overlay.architecture} have no stand-in here",
            hint="one of chai's own, e.g. --overlay pynq-z2",
        )
    place = folder / overlay.name
    place.mkdir()
    (place / f"{overlay.name}.bit").touch()
    (place / f"{overlay.name}.hwh").write_text("<EDKSYSTEM/>")  # a design without clocks
    return Path(shutil.copy(overlay.path, place / "overlay.json"))


def _compiled(job: Job, manifest: Path, folder: Path) -> Path:
    """Compile the network, for one image; its formats are those of random inputs, unless it brings some."""
    with chai.Net(job.network, job.weights, "emulator", overlay=manifest, batch=1, engine=job.engine) as net:
        if not net.calibrated:
            random = np.random.default_rng(0)
            net.calibrate({b: random.uniform(-100, 100, net.shapes[b]).astype(np.float32) for b in net.inputs})
        path = folder / "network.chai"
        save(net, path, net.card)
    return path


def _picture(picture: str, folder: Path) -> Path:
    """Return a picture's path; one that is made up has shapes and noise, and about 2 bits a pixel as JPEG."""
    size = SIZE.fullmatch(picture)
    if size is None:
        return Path(picture).resolve()
    return sample(folder, *map(int, size.groups()))


def plugin(guest: Guest, folder: Path) -> Path:
    """Compile the plugin for the guest's qemu. Raises Failed; Unavailable without a C compiler."""
    try:
        command = compiler()
    except Failed as error:
        raise Unavailable(str(error)) from error
    library = folder / "insn.so"
    version = 1 if guest.version < 9 else 2
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-DVERSION={version}"]
    done = subprocess.run(
        [*command, *flags, str(HERE / "insn.c"), "-o", str(library)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"insn.c was not compiled: {done.stderr}")
    return library
