"""Measure the accuracy that quantisation costs GoogLeNet and SqueezeNet, on photos not used for any choice.

    python tools/bench_quantizer.py MODELS [--effort normal] [--only squeezenet_v1.1:6:Xilinx] [--swapped]

MODELS is the folder of the tests' models. Every other one of its 64 calibration photos calibrates (ranges, weights, choice
of the recipe); the other 32 and the networks' nine photos judge; --swapped exchanges the halves. Each result is compared
with plain max calibration (every format and weight by its largest value) in the same widths. The KL has a 95 % bootstrap
interval over the judging photos: a few photos between two classes contribute most of it.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import chai
from chai.evaluate import Evaluation, evaluate, output, wilson
from chai.images import files as images
from chai.images.preprocess import Preprocess
from chai.quantizer import PLAIN, Recipe, quantize

SIZES = {"googlenet": 224, "squeezenet_v1.1": 227}
BATCH = 8
Array = Any


def load(name: str, files: list[Path], classes: dict[str, int]) -> list[tuple[Array, int | None]]:
    """Return inputs (C, H, W) with their class, from the synset in the file's name."""
    side = SIZES[name]
    prepare = Preprocess(resize=(256, 256), crop=(side, side), mean=(104, 117, 123))
    shape = (1, 3, side, side)
    return [(prepare(images.read(file), shape), classes.get(file.name[:9])) for file in files]


Pair = tuple[Evaluation, Evaluation]  # of one photo, in float and in fixed point


def measure(folder: Path, files: tuple[Path, Path], items: list[tuple[Array, int | None]]) -> list[Pair]:
    """Evaluate the written files against float, photo by photo."""
    source = folder / "deploy.prototxt", folder / "weights.caffemodel"
    with chai.Net(*source, "float", batch=1) as probe:
        keep = [str(output(probe).logits)]
    with (
        chai.Net(*source, "float", batch=1, keep=keep) as reference,
        chai.Net(*files, "emulator", batch=1, keep=keep) as fixed,
    ):
        return [evaluate(reference, fixed, [({"data": x[None]}, [truth])]) for x, truth in items]


def row(name: str, pairs: list[Pair]) -> str:
    """Return one line of figures."""
    exact, found = zip(*pairs)
    count, agree, known = len(found), sum(e.agree for e in found), sum(e.known for e in found)
    low, high = wilson(agree, count)
    kl = np.array([e.kl for e in found])
    means = kl[np.random.default_rng(0).integers(0, count, (10000, count))].mean(1)
    least, most = np.percentile(means, [2.5, 97.5])
    sides = {"float": exact, "fixed": found}
    hits = " ".join(f"{k} {sum(e.hits[0] for e in side)}/{known}" for k, side in sides.items())
    text = f"{name:<12} {100 * agree / count:5.1f} % ({100 * low:.1f}-{100 * high:.1f})"
    text += f"  KL {kl.mean():.4f} ({least:.4f}-{most:.4f})"
    return f"{text}  {sum(e.sqnr for e in found) / count:5.1f} dB  top-1 {hits}"


def main() -> None:
    """Print a row for every network, width and scheme, or for those in --only."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--only", action="append", default=[], metavar="NET:BITS:SCHEME")
    parser.add_argument("--swapped", action="store_true")
    args = parser.parse_args()
    lines = (args.models / "synset_words.txt").read_text().splitlines()
    classes = {line.split()[0]: i for i, line in enumerate(lines)}
    photos = images.find([args.models / "calibration_images"])
    runs = [f"{n}:{b}:{s}" for n in SIZES for s in ("Xilinx", "DynamicFixed") for b in (8, 6)]
    for run in args.only or runs:
        name, bits, scheme = run.split(":")
        folder = args.models / name
        calibration = load(name, photos[args.swapped :: 2], classes)
        test = load(name, [*photos[not args.swapped :: 2], *images.find([folder / "images"])], classes)
        print(f"{name}, {bits}-bit {scheme}: calibrated on {len(calibration)} photos, judged on {len(test)} others")
        recipes: dict[str, Recipe | None] = {"plain max": PLAIN, args.effort: None}
        for what, recipe in recipes.items():
            with tempfile.TemporaryDirectory() as place:
                begun = process_time()
                found = quantize(
                    folder / "deploy.prototxt",
                    folder / "weights.caffemodel",
                    [np.stack([x for x, _ in calibration[i : i + BATCH]]) for i in range(0, len(calibration), BATCH)],
                    Path(place, "out.prototxt"),
                    bits=int(bits),
                    scheme=scheme,
                    effort=args.effort,
                    recipe=recipe,
                    batch=BATCH,
                )
                cpu = process_time() - begun
                result = measure(folder, (found.prototxt, found.caffemodel), test)
            print("  " + row(what, result), flush=True)
            if recipe is None:
                print(f"  {found.built.recipe}; calibration KL {found.cost:.4f}, plain {found.plain:.4f}")
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                wall = f"{found.seconds:.0f} s, of which {found.observing:.0f} s float pass"
                print(f"  {wall}; {cpu:.0f} s of CPU; peak {peak:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
