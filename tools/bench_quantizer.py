"""Measure the accuracy that quantisation costs GoogLeNet and SqueezeNet, on photos not used for any choice.

    OPENBLAS_NUM_THREADS=1 taskset -c 0 python tools/bench_quantizer.py MODELS [--only squeezenet_v1.1:6:Xilinx]

MODELS is the folder of the tests' models. Its 64 calibration photos are divided into --folds parts. Each part judges the
network that was quantised with the others, so that every photo judges once. A row has the mean over the photos of
KL(float || fixed) in nats and the share of photos with the same best class, both with a standard error; the KL of plain
max calibration (every format and weight by its largest value) for the same photos and widths; and the mean user time of
one quantisation. --each adds a row per fold, with the recipe.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import chai
from chai.evaluate import Evaluation, evaluate, output
from chai.images import files as images
from chai.images.preprocess import Preprocess
from chai.quantizer import PLAIN, quantize
from chai.quantizer.groups import Widths

SIZES = {"googlenet": 224, "squeezenet_v1.1": 227}
BATCH = 8
HEAD = f"{'network':<16} {'scheme':<13} {'bits':<6} {'KL':<16} {'agreement %':<13} {'plain max KL':<16} user s"
Array = Any


def load(name: str, files: list[Path]) -> Array:
    """Return inputs (N, C, H, W)."""
    side = SIZES[name]
    prepare = Preprocess(resize=(256, 256), crop=(side, side), mean=(104, 117, 123))
    return np.stack([prepare(images.read(file), (1, 3, side, side)) for file in files])


def batches(data: Array) -> list[Array]:
    """Return parts of at most BATCH images."""
    return [data[i : i + BATCH] for i in range(0, len(data), BATCH)]


def measure(source: tuple[Path, Path], files: tuple[Path, Path], photos: Array) -> list[Evaluation]:
    """Return an evaluation of the written files against float for each photo."""
    with chai.Net(*source, "float", batch=1) as probe:
        keep = [str(output(probe).logits)]
    with (
        chai.Net(*source, "float", batch=1, keep=keep) as exact,
        chai.Net(*files, "emulator", batch=1, keep=keep) as fixed,
    ):
        return [evaluate(exact, fixed, [({"data": photo[None]}, [None])])[1] for photo in photos]


def row(run: str, evaluations: list[Evaluation], plain: list[Evaluation], seconds: float) -> str:
    """Return one line of figures."""
    name, bits, scheme = run.split(":")
    agree = 100 * np.array([e.agree for e in evaluations])
    kl, least = (error([e.kl for e in each], 4) for each in (evaluations, plain))
    return f"{name:<16} {scheme:<13} {bits:<6} {kl:<16} {error(agree, 1):<13} {least:<16} {seconds:.0f}"


def error(values: Any, digits: int) -> str:
    """Return mean +- standard error."""
    return f"{np.mean(values):.{digits}f} +- {np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"


def main() -> None:
    """Print a row for every network, width and scheme, or for those in --only."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--only", action="append", default=[], metavar="NET:BITS:SCHEME")
    parser.add_argument("--chaidnn", action="store_true", help="only what CHaiDNN reads: signed codes")
    parser.add_argument("--each", action="store_true", help="a row per fold, too")
    args = parser.parse_args()
    photos = images.find([args.models / "calibration_images"])
    runs = [f"{n}:{b}:{s}" for n in SIZES for s in ("Xilinx", "DynamicFixed") for b in ("8", "6", "mixed")]
    print(HEAD)
    for run in args.only or runs:
        name, bits, scheme = run.split(":")
        source = args.models / name / "deploy.prototxt", args.models / name / "weights.caffemodel"
        widths: Widths = "mixed" if bits == "mixed" else int(bits)
        data = load(name, photos)
        part = np.arange(len(photos)) % args.folds
        judged: dict[bool, list[Evaluation]] = {False: [], True: []}
        user = 0.0
        for fold in range(args.folds):
            for plain in (False, True):
                with tempfile.TemporaryDirectory() as place:
                    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
                    quantised = quantize(
                        *source,
                        batches(data[part != fold]),
                        Path(place, "out.prototxt"),
                        bits=widths,
                        scheme=scheme,
                        effort=args.effort,
                        recipe=PLAIN if plain else None,
                        chaidnn=args.chaidnn,
                        batch=BATCH,
                    )
                    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
                    result = measure(source, (quantised.prototxt, quantised.caffemodel), data[part == fold])
                judged[plain] += result
                user += 0 if plain else seconds
                if args.each and not plain:
                    kl = f"KL {error([e.kl for e in result], 4)}"
                    print(
                        f"  fold {fold}: {kl}, {quantised.cost:.4f} on the others; {quantised.built.recipe}; {seconds:.0f} s"
                    )
        print(row(run, judged[False], judged[True], user / args.folds), flush=True)


if __name__ == "__main__":
    main()
