"""python -m tools.bench.goals [FOLDER]: the table of goals, chai beside the best of other engines on this machine.

FOLDER has trained networks, each in a folder of its own: deploy.prototxt and weights.caffemodel. Shipped networks that are not
there have random weights; others are left out, which a line says. Every row is a run of ``python -m tools.bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chai.cli.bench import NOISE
from chai.kernels.native import library
from chai.zoo import networks

from .engines import ENGINES

OPENVINO = "openvino int8", "openvino nncf int8"
FLOAT = "openvino", "onnxruntime", "opencv"
ALL = tuple(name for name in ENGINES if name != "mnn")  # which has no codes, and is slower in float32 than these
AVX512 = {"CHAI_KERNELS": "avx512vnni", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}
AVX2 = {"CHAI_KERNELS": "avx2", "OPENCV_CPU_DISABLE": "AVX512-SKX"}
SHARES = {"whole": 0.65, "convolutions": 0.87}  # of the peak, on an AMD EPYC
SHORT = "lenet", "digits", "cifar_resnet20"  # passes below a millisecond, of which many are timed
COLUMNS = "{:<18}{:<9}{:>8}{:>6}{:>16}  {:<19}{:>16}{:>7}{:>8}{:>6}  {}"


class Goal(NamedTuple):
    """Ratios to reach of the best peer's least time to chai's, each of (threads, batch), for networks on a device."""

    networks: Sequence[str]
    device: str
    peers: Sequence[str]
    ratios: Mapping[tuple[int, int], float]
    environment: Mapping[str, str] = {}


def goals() -> Iterator[Goal]:
    """Yield the goals on this processor."""
    both = 1.2, 1.2, 1.1
    if library.variant("amx"):
        yield Goal(["googlenet"], "emulator", OPENVINO, _ratios(1.1, 1.1, 0.95))
        yield Goal(["googlenet"], "emulator", OPENVINO, _ratios(*both), AVX512)
    else:
        yield Goal(["googlenet"], "emulator", OPENVINO, _ratios(*both))
    others = ["squeezenet_v1.1", "resnet50", "mobilenet_v1", "cifar_resnet20", "vgg16"]
    yield Goal(others, "emulator", ALL, _ratios(1.0, 1.0, 1.0))
    yield Goal(["googlenet", "squeezenet_v1.1", "mobilenet_v1"], "float", FLOAT, _ratios(1.0, 0.95, 0.95))
    yield Goal(["lenet", "digits"], "emulator", ALL, {(1, 1): 1.0})
    yield Goal(["googlenet"], "emulator", ["opencv"], {(1, 1): 3.0}, AVX2)


def _ratios(single: float, both: float, batch: float) -> dict[tuple[int, int], float]:
    return {(1, 1): single, (2, 1): both, (1, 8): batch}


def files(network: str, folder: Path | None) -> list[str]:
    """Return the words that name a network: its files in the folder, a shipped network, or none."""
    paths = [folder / network / name for name in ("deploy.prototxt", "weights.caffemodel")] if folder else []
    if paths and all(path.is_file() for path in paths):
        return [*map(str, paths)]
    return [network] if network in networks.names() else []


def measured(words: Sequence[str], goal: Goal, threads: int, batch: int, rounds: int, busy: bool) -> dict[str, Any]:
    """Return the figures of a run. Raises CalledProcessError."""
    command = [sys.executable, "-m", "tools.bench", *words, "--device", goal.device, "--json", "--quiet"]
    command += ["--against", ",".join(goal.peers), "--threads", str(threads), "--batch", str(batch)]
    command += ["--rounds", str(rounds), *(["--peak"] if goal.device == "emulator" else [])]
    command += ["--processor-time"] if busy else []
    environment = {**os.environ, **goal.environment}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def cells(network: str, figures: Mapping[str, Any], goal: float) -> list[str]:
    """Return the cells of a row: least times and medians, an image, of chai and of the peer with the best least time."""
    (run,) = figures["runs"]
    times, instructions = run["ms_per_image"], figures["instructions"]
    peers = [name for name in times if name != "chai"]
    row = [network, figures["device"], run["threads"], run["batch"], _ms(times["chai"])]
    if not peers:
        return [*map(str, row), "no peer", *[""] * 5]
    best = min(peers, key=lambda name: times[name]["min"])
    least, median = (f"{run['ratio'][best][key]:.2f}" for key in ("min", "median"))
    reached = "met" if run["ratio"][best]["min"] >= goal else "no"
    if not run["measurable"]:
        least, median, reached = "-", "-", "threads do too little more than one"
    noisy = f", halves differ by {run['noise']:.0%}" if run["noise"] > NOISE else ""
    sets = f"{'+'.join(instructions['chai'])} / {'+'.join(instructions[best])}"
    return [*map(str, row), best, _ms(times[best]), least, median, str(goal), f"{reached}   {sets}{noisy}"]


def _ms(times: Mapping[str, float]) -> str:
    return f"{times['min']:.2f} ({times['median']:.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.goals", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("folder", nargs="?", type=Path, help="trained networks")
    parser.add_argument(
        "--rounds", type=int, default=30, help="passes of each (default: 30; 20 times as many of short ones)"
    )
    parser.add_argument(
        "--processor-time", action="store_true", help="for a busy machine: time passes by it, of one thread alone"
    )
    parser.add_argument("--only", help="networks to time, by commas")
    args = parser.parse_args(arguments)
    if args.folder and not args.folder.is_dir():
        parser.error(f"there is no folder {args.folder}")
    processor = "nothing was timed"
    print(
        "least (median) ms an image of chai and of the best other engine; their ratio by least times, by medians, and its goal"
    )
    head = ["network", "device", "threads", "batch", "chai", "best peer", "ms", "ratio", "median", "goal"]
    print(COLUMNS.format(*head, "instructions of both"), flush=True)
    for goal in goals():
        for network in goal.networks:
            if args.only and network not in args.only.split(","):
                continue
            if not (words := files(network, args.folder)):
                print(f"{network}: not in {args.folder or 'a folder of trained networks'}", flush=True)
                continue
            for (threads, batch), ratio in goal.ratios.items():
                if threads > 1 and args.processor_time:
                    continue  # it is of all threads together
                rounds = args.rounds * (20 if network in SHORT else 1)
                figures = measured(words, goal, threads, batch, rounds, args.processor_time)
                print(COLUMNS.format(*cells(network, figures, ratio)), flush=True)
                share, processor = figures["runs"][0]["share"], figures["processor"]
                if share and network == "googlenet" and threads == batch == 1 and not goal.environment:
                    parts = [f"{what} {share[what]:.2f} (goal {least})" for what, least in SHARES.items()]
                    print(f"  of the peak: {', '.join(parts)}", flush=True)
    print(f"{processor}, load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
