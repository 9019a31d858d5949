"""Fuzz every kind of file that chai reads: each damaged file must be refused with a ChaiError, or work.

    python tools/fuzz.py [--minutes 10] [--cases N] [--seed 0] [--kind KIND ...] [--found FOLDER] [FILE|FOLDER ...]

Kinds are prototxt, upgrade (V0 and V1 networks), caffemodel, onnx, npy, card (.toml), mean (.binaryproto), journal, list (CSV of
chai estimate), overlay, kernels (.xml), jpeg, png, bmp, ppm and compiled (.chai; most of these and of the PNGs have right
checksums). Seeds are the shipped files, those of tools/fuzz_seeds.py and the files named. Each case has a number: with the
same seeds and kinds, the same number gives the same file (--only NUMBER). A worker process reads the file, infers a
network's shapes, and runs small networks with random weights, and compiled ones, once. A case fails on any exception but a
ChaiError, when reading takes more than SECURITY.md says (2 s and 300 MB above the file's size, for images more), or when
the worker dies or hangs; its file is kept in --found. Exit code 1 if any case failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from fuzz_seeds import ENDINGS, RUN, SOURCE, seeds  # noqa: E402

from chai import Net, Preprocess  # noqa: E402
from chai.limits import Limits  # noqa: E402
from tests.artifact.common import parts  # noqa: E402
from tests.artifact.mutate import damaged  # noqa: E402
from tests.parser.mutate import BINARY, PICTURE, TEXT, extreme, mended, mutants, quoted  # noqa: E402 - from the checkout

if "CHAI_SANITISED" in os.environ:
    import sanitise  # noqa: F401 - its library, in this process and in the worker

Run = Callable[[], str]  # runs a network that was read, and returns the verdict
SECONDS, IMAGE_SECONDS = 2.0, 5.0  # to read a file
MEMORY, IMAGE_MEMORY = 300 << 20, 16 * Limits().image_pixels  # bytes above the file's own
RUNNING = 60.0  # seconds until a worker counts as hung
SMALL = 50_000_000  # most multiply-accumulates of a network that is run
WAYS = {  # ways to damage files that are not text, or only at their start
    "caffemodel": BINARY,
    "mean": BINARY,
    "onnx": BINARY,
    "npy": [*BINARY, extreme, extreme, quoted],
    "jpeg": PICTURE,
    "png": PICTURE,
    "bmp": PICTURE,
    "ppm": [*PICTURE, extreme, extreme],
}
IMAGES = {".jpg", ".png", ".bmp", ".ppm"}


def main() -> int:
    """Fuzz until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--cases", type=int, help="no more than so many")
    parser.add_argument("--kind", action="append", choices=list(ENDINGS), help="may be repeated (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER")
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"))
    parser.add_argument(
        "--slower", type=float, default=1, help="let each file take so many times as long: a slow machine"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(args.slower)
    kinds = args.kind or list(ENDINGS)
    files = seeds(args.seeds, kinds)
    counts: Counter[str] = Counter()
    of_kind: Counter[str] = Counter()
    end = time.monotonic() + 60 * args.minutes
    number = args.seed if args.only is None else args.only
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(args.slower)
        while time.monotonic() < end:
            kind, path = write(number, files, kinds, Path(folder))
            verdict = worker.ask(path)
            counts[verdict.split(":")[0]] += 1
            of_kind[kind] += 1
            if not verdict.startswith(("refused", "read", "ran")):
                args.found.mkdir(exist_ok=True)
                kept = args.found / f"{number}{path.suffix}"
                kept.write_bytes(path.read_bytes())
                print(f"case {number}: {verdict}   kept as {kept}", flush=True)
            if args.only is not None:
                print(verdict)
            if args.only is not None or sum(counts.values()) == args.cases:
                break
            number += 1
            if sum(counts.values()) % 500 == 0:
                print(f"{sum(counts.values())} cases, {dict(counts)}", file=sys.stderr, flush=True)
        worker.close()
    print(f"{sum(counts.values())} cases: {', '.join(f'{n} {what}' for what, n in counts.most_common())}")
    print(f"of them {', '.join(f'{of_kind[kind]} {kind}' for kind in kinds)}")
    return int(any(not what.startswith(("refused", "read", "ran")) for what in counts))


def write(number: int, files: dict[str, list[bytes]], kinds: list[str], folder: Path) -> tuple[str, Path]:
    """Write the file of a case; return its kind and path."""
    rng = random.Random(number)
    kind = rng.choice(kinds)
    path = folder / f"case{ENDINGS[kind]}"
    content = rng.choice(files[kind])
    if kind == "compiled":
        path.write_bytes(content)
        path.write_bytes(damaged(np.random.default_rng(number), content, *parts(path)))
    else:
        changed = next(mutants(content, rng, WAYS.get(kind, TEXT)))
        path.write_bytes(mended(changed) if kind == "png" and rng.random() < 0.9 else changed)
    return kind, path


class Worker:
    """A process that reads files; restarted when it dies or hangs."""

    def __init__(self, slower: float) -> None:
        self.slower = slower
        self.process: subprocess.Popen[str] | None = None

    def ask(self, path: Path) -> str:
        """Have the process read a file and return the verdict."""
        import select

        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--worker", "--slower", str(self.slower)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], RUNNING)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return str(json.loads(line))
        self.process.kill()
        code = self.process.wait()
        self.process = None
        return "hang: no answer" if not ready else f"crash: the worker ended with {code}"

    def close(self) -> None:
        """End the process."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


def work(slower: float) -> int:
    """Read the names of files from stdin, answer in JSON, one line each."""
    import logging

    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        is_image = Path(line.strip()).suffix in IMAGES
        with suppress(OSError):  # Linux forgets the peak: a large file does not hide the next
            Path("/proc/self/clear_refs").write_text("5")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.process_time()  # CPU time: a busy machine must not fail a file
        try:
            verdict, run = look(Path(line.strip()))
        except BaseException as error:
            verdict, run = f"traceback: {type(error).__name__}: {str(error)[:200]}", None
        seconds = time.process_time() - begin
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        if seconds > slower * (IMAGE_SECONDS if is_image else SECONDS):
            verdict = f"slow: {seconds:.1f} s ({verdict})"
        elif grown > (IMAGE_MEMORY if is_image else MEMORY) + os.path.getsize(line.strip()):
            verdict = f"memory: {grown / 1e6:.0f} MB ({verdict})"
        elif run is not None:
            verdict = run()
        print(json.dumps(verdict), flush=True)
    return 0


def look(path: Path) -> tuple[str, Run | None]:
    """Read a file; return the verdict, and the network to run if there is one."""
    from chai.errors import ChaiError

    readers: dict[str, Callable[[Path], Run | None]] = {".prototxt": network, ".onnx": network, ".chai": compiled}
    try:
        return "read", readers.get(path.suffix, other)(path)
    except ChaiError:
        return "refused", None


def other(path: Path) -> None:
    """Read a file that is not a prototxt."""
    from chai import overlay
    from chai.chaidnn import estimate
    from chai.images import files as images
    from chai.parser.caffemodel import Weights
    from chai.plugins.opencl import reading
    from chai.util.data import journal
    from chai.zoo.card_file import read_card

    if path.suffix == ".caffemodel":
        weights = Weights(path)
        for blob in chain(*weights.layers.values()):
            blob.load()
    elif path.suffix in IMAGES:
        images.prepared([path], Preprocess(), (1, 3, 19, 17))
        if path.suffix == ".png":
            images.read_classes(path)
    elif path.suffix in (".npy", ".binaryproto"):
        images.read_mean(path)
    elif path.suffix == ".toml":
        read_card(path)
    elif path.suffix == ".jsonl":
        with journal.Journal(path, RUN):
            pass
    elif path.suffix == ".xml":
        (path.parent / "a.cl").write_text(SOURCE)
        reading.read(path)
    elif path.suffix == ".csv":
        estimate.estimate(path, overlay.load())
    else:
        overlay.load(path)


def network(path: Path) -> Run | None:
    """Read a prototxt or an ONNX file and infer its shapes; return the network to run if it is small."""
    from chai.passes.infer_shapes import infer_shapes
    from chai.zoo.locate import locate, read_network

    graph, _ = read_network(*locate(path, None))
    shapes = infer_shapes(graph, {b: s for b, s in graph.inputs.items() if s})
    macs = sum(
        layer.macs(tuple(shapes[b] for b in layer.bottoms), tuple(shapes[t] for t in layer.tops))
        for layer in graph.layers
        if not layer.source
    )
    if macs > SMALL or sum(map(size, shapes.values())) > SMALL or any(s is None for s in graph.inputs.values()):
        return None
    return partial(run, partial(Net, path, device="float"))


def compiled(path: Path) -> Run:
    """Read a compiled network, and return how to run it."""
    net = Net(path)
    return partial(run, lambda: net)


def size(shape: tuple[int, ...]) -> int:
    """Return the elements of a blob."""
    from math import prod

    return prod(shape)


def run(network: Callable[[], Net]) -> str:
    """Run one forward pass, in float32 with random weights or as it was compiled."""
    from chai.errors import ChaiError

    draw = np.random.default_rng(0)
    try:
        with network() as net:
            net.forward(**{b: 100 * draw.standard_normal(net.shapes[b]).astype(np.float32) for b in net.inputs})
    except ChaiError:
        return "refused while running"
    except BaseException as error:
        return f"traceback: {type(error).__name__}: {str(error)[:200]}"
    return "ran"


if __name__ == "__main__":
    sys.exit(main())
