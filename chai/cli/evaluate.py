"""chai evaluate: float and fixed point side by side over many images."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from .. import image as images
from ..errors import ParseError, UsageError
from ..evaluate import Evaluation, evaluate, scores
from ..limits import limits
from ..loading import locate, read_graph
from ..net import Net
from . import jobs, options, output

if TYPE_CHECKING:
    from ..graph import Array

EPILOG = """examples:
  chai evaluate digits --images photos/
  chai evaluate net_int8.prototxt net_int8.caffemodel --images val/ --labels synset_words.txt
      --reference net.prototxt net.caffemodel --truth val.txt

The true class of an image is its line in --truth, else the synset id that its name begins with, else its folder:
a class number, a synset id or a label."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.network(parser)
    parser.add_argument(
        "--images",
        nargs="+",
        required=True,
        metavar="DIR",
        help="images, .npy inputs or folders of them, or of folders",
    )
    parser.add_argument("--labels", type=Path, metavar="FILE", help="one label per line, with synset ids or without")
    parser.add_argument("--truth", type=Path, metavar="FILE", help="lines of: file name, class number")
    parser.add_argument(
        "--reference",
        nargs=2,
        metavar=("NET", "WEIGHTS"),
        help="the float side (default: the same files); for a quantised network, what it was made from",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="no more than N images")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="images per pass (default: 8)")
    parser.add_argument(
        "--calibration", type=Path, metavar="DIR", help="images that formats are taken from (default: the first batch)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    options.execution(parser)
    options.preprocessing(parser)
    parser.set_defaults(random_weights=False)


def execute(args: argparse.Namespace) -> int:
    """Run all images through both. An image that cannot be read is reported and left out; the exit code is then 65."""
    if args.batch < 1 or (args.limit is not None and args.limit < 1):
        raise UsageError("--batch and --limit must be at least 1")
    path, weights = locate(args.net, args.weights)
    options.load_custom(args)
    keep = [scores(read_graph(path, phase=args.phase, stages=args.stage))[1]]
    files = list(islice(_files(args.images), args.limit))
    job = jobs.prepare(args, files, keep)
    if job.net.overlay is None:
        raise UsageError("--device float against float says nothing", hint="--device emulator")
    exact = locate(*args.reference) if args.reference else (path, weights)
    shapes = options.shapes(args.shape)
    batch = min(args.batch, len(files))
    reference = Net(*exact, "float", phase=args.phase, stages=args.stage, shapes=shapes, batch=batch, keep=keep)
    if args.calibration:
        jobs.calibrate(args, job)
    truth = _Truth(args.labels, args.truth)
    failed: list[dict[str, str]] = []
    with reference, job.net:
        found = evaluate(reference, job.net, _inputs(args, files, job, failed, truth))
    if args.json:
        content = {**found.to_json(), "network": job.net.name, "device": job.net.device.name}
        output.as_json("chai.evaluate/1", **content, preprocess=jobs.describe(job), failed=failed)
    else:
        print(jobs.header(args, job))
        _print(found, job.net.device.name)
    if not args.quiet and not args.json and not found.known:
        output.say("next: --labels FILE or --truth FILE says which answers are right")
    return 65 if failed else 0


def _files(places: list[str]) -> Iterator[Path]:
    """Image files in order of their names; a folder of folders gives what is in those."""
    for place in map(Path, places):
        inside = sorted(p for p in place.iterdir() if p.is_dir()) if place.is_dir() else []
        yield from images.find(inside or [place])


def _inputs(
    args: argparse.Namespace, files: list[Path], job: jobs.Job, failed: list[dict[str, str]], truth: _Truth
) -> Iterator[tuple[dict[str, Array], list[int | None]]]:
    shown = output.progress(files, len(files), "images", args.quiet)
    data = None
    for names, data in jobs.batches(jobs.items(shown, job, failed), args.batch):
        yield {job.blob: data}, [truth(Path(name)) for name in names]
    if data is None:
        raise ParseError("none of the images can be read", path=str(files[0]))


class _Truth:
    """The true class of an image file, or None."""

    def __init__(self, labels: Path | None, truth: Path | None) -> None:
        self.classes: dict[str, int] = {}
        for i, line in enumerate(_lines(labels) if labels else []):
            self.classes.setdefault(line.strip(), i)
            self.classes.setdefault(line.split(" ")[0], i)
        self.listed: dict[str, int] = {}
        for number, line in enumerate(_lines(truth) if truth else [], 1):
            name, _, index = line.strip().rpartition(" ")
            if line.strip() and not (name and index.isdecimal()):
                raise ParseError(
                    f"expected a file name and a class number, found {line!r}", path=str(truth), line=number
                )
            if line.strip():
                self.listed[Path(name.strip()).name] = int(index)

    def __call__(self, file: Path) -> int | None:
        if file.name in self.listed:
            return self.listed[file.name]
        folder = file.parent.name
        if folder.isdecimal():
            return int(folder)
        return self.classes.get(file.name[:9], self.classes.get(folder))


def _lines(path: Path) -> list[str]:
    if path.stat().st_size > limits().text_bytes:
        raise ParseError(limits().exceeded("text_bytes", path.stat().st_size), path=str(path))
    return path.read_text("utf-8", errors="replace").splitlines()


def _print(found: Evaluation, device: str) -> None:
    low, high = found.interval
    share = 100 * found.agree / found.images
    print(
        f"same best class  {found.agree}/{found.images} ({share:.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f})"
    )
    print(f"KL(float || {device})  {found.kl / found.images:.4g} nats per image")
    print(f"{output.printable(found.logits)}  {found.sqnr / found.images:.1f} dB")
    if found.known:
        rows = [
            [name, *(f"{n}/{found.known} ({100 * n / found.known:.1f} %)" for n in found.hits[key])]
            for name, key in (("float", "float"), (device, "fixed"))
        ]
        output.table(["", "top-1", "top-5"], rows, "lrr")
