"""python -m tools.arm_cost: count the instructions of each step of a pass on a board's processor, under qemu."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import chai
from chai import overlay as overlays
from chai.artifact.save import save
from chai.errors import ChaiError, UsageError
from chai.kernels.native.build import Failed, compiler
from chai.zoo import is_compiled

from .cost import Cost, markdown, medians, replaced
from .debian import FOLDER, MACHINES, ROOT, Guest, Unavailable

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "board.md"
OVERLAYS = {"armv7l": "pynq-z2", "aarch64": "ultra96"}
SHIPPED = ("googlenet", "googlenet_nolrn", "squeezenet_v1.1", "digits")  # what --table counts
WARM, REPEAT = 2, 3
EPILOG = """examples:
  python -m tools.arm_cost googlenet --machine armv7l
  python -m tools.arm_cost net.prototxt net.caffemodel --json
  python -m tools.arm_cost net.chai
  python -m tools.arm_cost googlenet --picture photo.jpg
  python -m tools.arm_cost --table

Weights are random if none are named: they change no step but those that look at
values, as DetectionOutput does. The overlay's Tasks are not computed: their codes are zeros. What
the kernel does (system calls, flushing of caches) and pynq's own Python are not counted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the instructions of a network, or write the table of docs/board.md."""
    args = _parser().parse_args(arguments)
    try:
        if args.table:
            costs = [measured(network, args, machine) for network in SHIPPED for machine in MACHINES]
            PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), markdown(costs)), encoding="utf-8")
            return 0
        cost = measured(args.network, args, args.machine)
    except (ChaiError, Unavailable, Failed, OSError) as error:
        print(f"tools.arm_cost: {error}", file=sys.stderr)
        return 1
    print(json.dumps(cost.to_json(), indent=2) if args.json else cost.text())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.arm_cost",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("network", nargs="?", help="a shipped network, a .prototxt or a .chai", metavar="NET")
    parser.add_argument("weights", nargs="?", help="its .caffemodel", metavar="WEIGHTS")
    parser.add_argument("--machine", choices=MACHINES, default="armv7l", help="default: armv7l")
    parser.add_argument("--cpu", help="qemu's name of the processor (default: that of the machine's boards)")
    parser.add_argument("--overlay", help=f"default: {', '.join(f'{v} on {k}' for k, v in OVERLAYS.items())}")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="count reading and preparing this picture instead")
    parser.add_argument("--repeat", type=int, default=REPEAT, metavar="N", help=f"measured passes (default: {REPEAT})")
    parser.add_argument("--root", type=Path, default=FOLDER, help="folder of the Debians (default: build/arm)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--table", action="store_true", help="write the table of docs/board.md")
    return parser


def measured(network: str, args: argparse.Namespace, machine: str) -> Cost:
    """Return the cost of a network on a machine. Raises ChaiError, Unavailable, Failed."""
    cpu, overlay = args.cpu or MACHINES[machine].cpu, args.overlay or OVERLAYS[machine]
    guest = Guest(MACHINES[machine], args.root)
    with TemporaryDirectory(prefix="chai-arm-") as name:
        folder = Path(name)
        manifest = _board(folder, overlay)
        print(f"{network} on {machine}", file=sys.stderr, flush=True)
        compiled = (
            Path(network).resolve() if is_compiled(network) else _compiled(network, args.weights, manifest, folder)
        )
        job = {"network": str(compiled), "overlay": str(manifest), "warm": WARM, "repeat": args.repeat}
        job |= {"picture": str(args.picture.resolve()) if args.picture else "", "counter": str(folder / "count")}
        (folder / "count").write_bytes(bytes(8))
        environment = {
            "QEMU_CPU": cpu,
            "CHAI_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "XILINX_XRT": "/",  # a board of sorts
            "TMPDIR": name,
        }
        done = guest.run(
            ["-m", "tools.arm_cost.guest", json.dumps(job)],
            paths=[HERE],
            env=environment,
            options=["-plugin", f"{_plugin(folder)},count={folder / 'count'}"],
            output=subprocess.PIPE,
        )
    if done.returncode:
        raise Unavailable(f"the program under qemu ended with {done.returncode}; its words are above")
    name = chai_name(network)
    return Cost(name, machine, cpu, manifest.parent.name, medians(json.loads(done.stdout)))


def chai_name(network: str) -> str:
    """Return a network's name: a file's without its ending."""
    return Path(network).stem if network.endswith((".prototxt", ".chai")) else network


def _board(folder: Path, overlay: str) -> Path:
    """Return the manifest of an overlay, copied beside an empty bitstream. Raises UsageError for an architecture."""
    loaded = overlays.load(overlay)
    if loaded.own is not None:
        raise UsageError(f"overlay {loaded.name}: its registers have no stand-in here", hint="an overlay of chai's own")
    place = folder / loaded.name
    place.mkdir()
    (place / f"{loaded.name}.bit").touch()
    (place / f"{loaded.name}.hwh").write_text("<EDKSYSTEM/>")
    return Path(shutil.copy(loaded.path, place / "overlay.json"))


def _compiled(network: str, weights: str | None, manifest: Path, folder: Path) -> Path:
    """Compile a network on this machine; its formats are those of random inputs, unless it brings some."""
    with chai.Net(network, weights, device="emulator", overlay=manifest, batch=1) as net:
        if not net.calibrated:
            random = np.random.default_rng(0)
            net.calibrate({b: random.uniform(-100, 100, net.shapes[b]).astype(np.float32) for b in net.inputs})
        path = folder / "network.chai"
        save(net, path, net.card)
    return path


def _plugin(folder: Path) -> Path:
    """Compile the plugin of qemu."""
    library = folder / "insn.so"
    done = subprocess.run(
        [*compiler(), "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", str(HERE / "insn.c"), "-o", str(library)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"insn.c: {done.stderr}")
    return library


if __name__ == "__main__":
    sys.exit(main())
