"""What quantising GoogLeNet and SqueezeNet costs in accuracy, on photos that no choice was made on.

    python tools/bench_quantizer.py MODELS [--effort normal] [--only squeezenet_v1.1:6:Xilinx]

MODELS is the folder of tests' models. Of its 64 calibration photos every other one calibrates (ranges, weights, choice of
the recipe); the other 32 and the networks' nine photos judge. Beside each result stands plain max calibration (every
format and weight by its largest value) in the same widths.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import chai
from chai import image as images
from chai.evaluate import Evaluation, evaluate, scores
from chai.quantizer import PLAIN, Recipe, quantize

SIZES = {"googlenet": 224, "squeezenet_v1.1": 227}
BATCH = 8
Array = Any


def load(name: str, files: list[Path], classes: dict[str, int]) -> list[tuple[Array, int | None]]:
    """Inputs (C, H, W) with their class, from the synset in the file's name."""
    side = SIZES[name]
    prepare = images.Preprocess(resize=(256, 256), crop=(side, side), mean=(104, 117, 123))
    shape = (1, 3, side, side)
    return [(prepare(images.read(file), shape), classes.get(file.name[:9])) for file in files]


def batches(items: list[tuple[Array, int | None]]) -> Iterator[tuple[dict[str, Array], list[int | None]]]:
    """Batches with their classes."""
    for i in range(0, len(items), BATCH):
        part = items[i : i + BATCH]
        yield {"data": np.stack([x for x, _ in part])}, [truth for _, truth in part]


def measure(folder: Path, files: tuple[Path, Path], items: list[tuple[Array, int | None]]) -> Evaluation:
    """The files that were written against float."""
    source = folder / "deploy.prototxt", folder / "weights.caffemodel"
    with chai.Net(*source, "float", batch=BATCH) as probe:
        keep = [scores(probe.graph)[1]]
    with (
        chai.Net(*source, "float", batch=BATCH, keep=keep) as reference,
        chai.Net(*files, "emulator", batch=BATCH, keep=keep) as fixed,
    ):
        return evaluate(reference, fixed, batches(items))


def row(name: str, e: Evaluation) -> str:
    """One line of figures."""
    low, high = e.interval
    text = f"{name:<44} {100 * e.agree / e.images:5.1f} % ({100 * low:.1f}-{100 * high:.1f})  KL {e.kl / e.images:.4f}"
    hits = " ".join(f"{k} {v[0]}/{e.known}" for k, v in e.hits.items())
    return f"{text}  {e.sqnr / e.images:5.1f} dB  top-1 {hits}"


def main() -> None:
    """Every network, width and scheme, or the ones asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--only", action="append", default=[], metavar="NET:BITS:SCHEME")
    args = parser.parse_args()
    lines = (args.models / "synset_words.txt").read_text().splitlines()
    classes = {line.split()[0]: i for i, line in enumerate(lines)}
    photos = images.find([args.models / "calibration_images"])
    runs = [f"{n}:{b}:{s}" for n in SIZES for s in ("Xilinx", "DynamicFixed") for b in (8, 6)]
    for run in args.only or runs:
        name, bits, scheme = run.split(":")
        folder = args.models / name
        calibration = load(name, photos[::2], classes)
        test = load(name, [*photos[1::2], *images.find([folder / "images"])], classes)
        print(f"{name}, {bits}-bit {scheme}: calibrated on {len(calibration)} photos, judged on {len(test)} others")
        recipes: dict[str, Recipe | None] = {"plain max": PLAIN, args.effort: None}
        for what, recipe in recipes.items():
            with tempfile.TemporaryDirectory() as place:
                found = quantize(
                    folder / "deploy.prototxt",
                    folder / "weights.caffemodel",
                    [batch for batch, _ in batches(calibration)],
                    Path(place, "out.prototxt"),
                    bits=int(bits),
                    scheme=scheme,
                    effort=args.effort,
                    recipe=recipe,
                    batch=BATCH,
                )
                result = measure(folder, (found.prototxt, found.caffemodel), test)
            print("  " + row(what, result), flush=True)
            if recipe is None:
                print(f"  {found.built.recipe}; calibration KL {found.built.cost:.4f}, plain {found.plain:.4f}")
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    f"  {found.seconds:.0f} s, of which {found.observing:.0f} s float pass; peak {peak:.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
