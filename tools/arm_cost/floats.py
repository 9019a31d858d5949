"""Count the instructions of float networks on an Arm processor, chai's and ncnn's, under qemu (as tools/arm_cost).

    python -m tools.arm_cost.floats squeezenet_v1.1 mobilenet_v1

Both compute one image in one thread, and their outputs are compared. ncnn's wheel for the machine is downloaded; networks are
written for it by tools/bench. Weights that are not here are random.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np

import chai
from chai.evaluate.bench.engines import Subject
from chai.parser.caffemodel import write_caffemodel
from tools.bench.engines import ENGINES

from .boxes import least
from .debian import FOLDER, MACHINES, Guest, Unavailable
from .guest import counter

PEER = "ncnn"
TOLERANCE = 1e-3  # of the largest output: ncnn convolves by tiles whose products are rounded


def wheel(guest: Guest) -> Path:
    """Return the folder of the peer's wheel for the guest's Python, downloaded once. Raises Unavailable."""
    folder = guest.folder / guest.machine.debian / PEER
    if not folder.exists():
        with TemporaryDirectory(dir=guest.folder) as name:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", name, PEER]
            pip += ["--platform", f"manylinux_2_28_{guest.machine.name}", "--python-version", guest.python]
            done = subprocess.run(pip, capture_output=True, text=True, check=False)
            files = [*Path(name).glob("*.whl")]
            if not files:
                raise Unavailable(f"there is no wheel of {PEER} for {guest.machine.name}: {done.stderr.strip()}")
            ZipFile(files[0]).extractall(Path(name, "site"))
            Path(name, "site").rename(folder)
    return folder


def task(network: str, folder: Path) -> dict[str, object]:
    """Write a network's files, and return what the guest needs to run it."""
    with chai.Net(network, device="float", batch=1) as net:
        random = np.random.default_rng(0)
        feeds = {blob: random.uniform(-100, 100, net.shapes[blob]).astype(np.float32) for blob in net.inputs}
        weights = folder / "weights.caffemodel"
        write_caffemodel(weights, net.name, ((one.name, one.type, one.blobs) for one in net.graph.layers))
        words = ENGINES[PEER].files(Subject(net.graph, ("", ""), feeds, 1), folder)
        np.savez(folder / "feeds.npz", *feeds.values())
    return {"network": network, "weights": str(weights), "words": words, "feeds": str(folder / "feeds.npz")}


def run(task: dict[str, str], path: Path) -> None:
    """Print the instructions of both, in millions, and their ratio; this runs under qemu."""
    instructions = counter(path)
    with chai.Net(task["network"], task["weights"], device="float", batch=1) as net:
        feeds = dict(zip(net.inputs, np.load(task["feeds"]).values()))
        peer = ENGINES[PEER].open(task["words"], feeds, 1)
        for value, other in zip(net.forward(**feeds).values(), peer()):
            if abs(value - other.reshape(value.shape)).max() > TOLERANCE * abs(value).max():
                raise SystemExit(f"{task['network']}: {PEER} has other outputs")
        ours, others = (least(run, lambda: instructions() / 1e6) for run in (lambda: net.forward(**feeds), peer))
    print(f"{task['network']:20} {ours:8.1f} {others:8.1f} {ours / others:8.2f}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count networks under qemu; return the exit code."""
    parser = argparse.ArgumentParser(description="Count the instructions of float networks on an Arm processor.")
    parser.add_argument(
        "networks", nargs="*", metavar="NET", help="shipped networks", default=["squeezenet_v1.1", "mobilenet_v1"]
    )
    parser.add_argument("--machine", choices=MACHINES, default="aarch64", help="default: aarch64")
    parser.add_argument("--root", type=Path, default=FOLDER, help="folder of Debians")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)  # the task and the counter of the run under qemu
    args = parser.parse_args(arguments)
    if args.run:
        run(json.loads(args.run[0]), Path(args.run[1]))
        return 0
    from .measure import counted  # with more than the run under qemu needs

    guest = Guest(MACHINES[args.machine], args.root)
    paths = [wheel(guest)]
    print(f"{'million instructions':20} {'chai':>8} {PEER:>8} {'ratio':>8}", flush=True)
    for network in args.networks:
        with TemporaryDirectory(prefix="chai-arm-") as name:
            words = json.dumps(task(network, Path(name)))
            done = counted(guest, ["-m", "tools.arm_cost.floats", "--run", words], Path(name), paths)
        print(done.stdout, end="", flush=True)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
