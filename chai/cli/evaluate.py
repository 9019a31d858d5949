"""chai evaluate: measure float, emulator and board side by side over many images, on many workers."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict

from .. import devices
from ..env import env
from ..errors import ParseError, UsageError
from ..evaluate.boxes import THRESHOLD
from ..evaluate.kinds import measure, reduce
from ..evaluate.measure import Record
from ..evaluate.outputs import Output, output as chosen_output, parse
from ..evaluate.truth import Truth, map_file, truth
from ..evaluate.workers.dispatch import Crew, batches, drive
from ..evaluate.workers.job import Job, Place, numbered
from ..evaluate.workers.processes import Processes
from ..images import files as images
from ..images.boxes import class_names
from ..kernels.native.library import arithmetic
from ..offload.formats import has_formats
from ..offload.headroom import IMAGES, Basis
from ..text import number_of
from ..util.data.journal import Journal
from ..zoo import is_compiled
from ..zoo.locate import locate
from . import inputs, options, output
from .parsing import option, refuse, section

_TRUTH = {"scores": "--labels FILE or --truth FILE", "boxes": "--truth FILE.jsonl", "map": "--truth DIR"}
LEAST = 0.001  # score of boxes of a head, which all count for average precision
_LOOPBACK = re.compile(r"://(localhost|127\.|\[::1\])")

EPILOG = """examples:
  chai evaluate digits --images photos/
  chai evaluate net_int8.prototxt net_int8.caffemodel --images val/ --labels synset_words.txt
      --reference net.prototxt net.caffemodel --truth val.txt --journal val.jsonl
  chai evaluate mobilenet_ssd --images street/ --truth street.jsonl
  chai evaluate net.prototxt net.caffemodel --images photos/ --truth masks/
  chai evaluate digits --images photos/ --device emulator --device pynq
  chai evaluate googlenet.chai --images val/ --truth val.txt --device pynq
  chai evaluate digits --images photos/ --scheduler tcp://host:8786

The measures depend on the kind of the output, which is printed: class scores,
boxes (SSD, YOLO) or a map of pixels. --truth is
  for scores  a file with lines of: file name, class number. Without it the class
              is taken from the synset id at the start of the file's name, or
              from its folder: a class number, a synset id or a label
  for boxes   a file with lines of
              {"file": "a.jpg", "boxes": [[class, x0, y0, x1, y1], ...]}
              in pixels of the image, or what chai run --json printed: VOC's
              mAP@0.5 is then printed. Or COCO's annotations, a .json: COCO's
              mAP@0.5:0.95, at 0.5 and 0.75, by size and by class
  for a map   a folder with NAME.png for NAME.jpg: the class number of each
              pixel, 255 for pixels to ignore

The numbers do not depend on how many workers there are. A compiled network has
no float side: its devices are compared with the first of them, or with
--reference. docs/evaluate.md defines each figure."""


class ClassPrecision(TypedDict):
    """Average precision of a class at overlaps of 0.5 to 0.95, and at 0.5, by COCO's rules."""

    index: int
    label: str
    ap: float
    ap50: float


class Judged(TypedDict, total=False):
    """Accuracy of scores, boxes or maps against ground truth; empty without it."""

    top1: int
    top5: int
    map50: float | None
    coco_map: float | None
    coco_map50: float | None
    coco_map75: float | None
    coco_map_small: float | None
    coco_map_medium: float | None
    coco_map_large: float | None
    coco_classes: list[ClassPrecision]
    pixel_accuracy: float | None
    mean_iou_truth: float | None


class JudgedDevice(Judged, total=False):
    """Comparison of a device with the reference: for scores, boxes or maps."""

    agree: int
    agreement: float
    agreement_95: list[float]
    kl: float | None
    logits_sqnr_db: float | None
    boxes: int
    expected: int
    matched: int
    precision: float | None
    recall: float | None
    pixel_agreement: float | None
    mean_iou: float | None


@dataclass(frozen=True)
class Evaluate(output.Schema):
    """Comparison of devices over many images."""

    schema = "chai.evaluate/3"
    network: str
    output: Output
    images: int
    known: int
    threshold: float | None
    reference: str
    float: Judged | None
    devices: dict[str, JudgedDevice]
    preprocess: str
    failed: list[inputs.Failure]


def arguments(parser: argparse.ArgumentParser) -> None:
    options.network(parser)
    options.detector(parser)
    group = section(parser, "input")
    option(group, "--images DIR", "images, .npy inputs or folders of them, or of folders", nargs="+", required=True)
    option(group, "--truth PATH", "true classes, boxes or maps, see below", type=Path)
    option(
        group, "--labels FILE", "names of the classes, one per line, with or without synset ids; coco or voc", type=Path
    )
    options.limit(parser)
    options.batch(parser, 8)
    options.calibration(parser)
    options.preprocessing(parser, fast_decode=True)
    option(
        section(parser, "device"),
        "--device NAME",
        "device to compare with float, see chai devices; repeatable (default: CHAI_DEVICE, else emulator)",
        action="append",
        default=[],
    )
    options.execution(parser, device=False)
    _measures(parser)
    _workers(parser)
    options.as_json(parser)


def _measures(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "measures")
    group.add_argument(
        "--reference",
        nargs=2,
        metavar=("NET", "WEIGHTS"),
        help="float side; for a quantised or compiled network, the files it was made from, an ONNX file twice "
        "(default: the same files)",
    )
    option(
        group, "--output BLOB=KIND", "output to evaluate and its kind: scores, boxes or map (default: by its layers)"
    )
    option(
        group,
        "--threshold P",
        "minimum score of boxes to compare with float (default: 0.3; mAP uses all boxes)",
        type=options.fraction,
        default=THRESHOLD,
    )


def _workers(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "workers")
    option(group, "--jobs N", "processes on this machine (default: one per core)", type=options.count)
    option(
        group,
        "--scheduler tcp://HOST:PORT",
        "use the workers of a dask scheduler instead (pip install chai-fpga[cluster])",
    )
    option(group, "--timeout S", "time limit per batch in seconds", type=float, default=600)
    options.journal(group)


def execute(args: argparse.Namespace) -> int:
    """Run all images. Report and skip those that cannot be read or run; the exit code is then 65."""
    _check(args)

    files = list(islice(_files(args.images), args.limit))
    inputs.check_preprocessing(args, files)
    job, prepared, todo, named = _job(args, files)
    prepared.net.close()
    truth = _truth(args, job, prepared.labels, todo, named)
    if not args.json:
        output.result(inputs.header(args, prepared))
        words = {"scores": "class scores", "boxes": "boxes", "map": "a map"}[job.output.kind]
        classes = "" if job.output.classes is None else f", {number_of(job.output.classes, 'class')}"
        output.result(f"output {job.output.blob}: {words}{classes}")
    records, lost = _run(args, job, todo)
    failed: list[inputs.Failure] = [
        {"file": named[r["image"]], "error": r["error"]} for r in sorted(lost, key=lambda r: int(r["image"]))
    ]
    for one in failed:
        output.say(f"error: {one['file']}: {one['error']}")
    if not records:
        raise ParseError("none of the images can be read", path=str(files[0]))
    chosen = measure(job.output, args.threshold, getattr(truth, "names", None))
    sides = reduce(records, job.sides, chosen, lambda image: truth(Path(named[image])))
    reference, *others = job.sides
    first = sides[reference]
    if args.json:
        content: dict[str, Any] = {
            "network": prepared.net.name,
            "output": job.output,
            "images": first.images,
            "known": first.known,
            "threshold": args.threshold if job.output.kind == "boxes" else None,
            "reference": reference,
            "float": sides["float"].judged() if "float" in sides else None,
            "devices": {d: sides[d].to_json() if d in others else sides[d].judged() for d in job.devices},
        }
        output.as_json(Evaluate(**content, preprocess=inputs.describe(prepared), failed=failed))
    else:
        output.table([number_of(first.images, "image"), *sides], chosen.rows(sides), "l" + "r" * len(sides))
        if not args.quiet and not first.known:
            output.say(f"next: {_TRUTH[job.output.kind]} says which answers are right")
    return 65 if failed else 0


def _truth(args: argparse.Namespace, job: Job, labels: Sequence[str], todo: list[Place], named: list[str]) -> Truth:
    """Return the known answers. Raises UsageError if they belong to other images, or if nothing can be compared."""
    names = class_names(labels, job.output.first_class, job.output.classes)
    known = truth(args.labels, args.truth, job.output, names)
    if job.maps is not None:
        some = any(map_file(job.maps, file, item).is_file() for _, file, item in todo)
    else:
        some = any(known(Path(name)) is not None for name in named)
    if (args.truth or args.labels) and not some:
        source = f"--truth {args.truth}" if args.truth else f"--labels {args.labels}"
        raise UsageError(f"{source} has no answer for any of the {len(named)} images", hint=f"the first is {named[0]}")
    if len(job.sides) == 1 and not some:
        raise UsageError(
            f"{args.net} on {job.sides[0]} alone: there is nothing to compare with",
            hint=f"{_TRUTH[job.output.kind]}, --reference NET WEIGHTS, or a second --device",
        )
    return known


def _check(args: argparse.Namespace) -> None:
    if not args.timeout > 0:
        raise UsageError(f"--timeout {args.timeout:g}: expected more than 0 seconds", hint="the default is 600")
    if args.scheduler:
        refuse(args, ("jobs",), "with --scheduler, which has workers of its own")
    options.check_journal(args)
    if args.reference:
        locate(*args.reference)  # float needs a prototxt
    args.device = list(dict.fromkeys(args.device)) or [env().device or devices.DEFAULT]
    for name in args.device:
        if not devices.open(name).fixed:
            raise UsageError(f"--device {name} against float says nothing", hint="--device emulator")


def _job(args: argparse.Namespace, files: list[Path]) -> tuple[Job, inputs.LoadedNetwork, list[Place], list[str]]:
    """Return the job of the workers, the prepared network, the images to run, and the name of each."""
    compiled = is_compiled(args.net)
    args.least_score = LEAST
    asked, args.device = tuple(args.device), "null" if compiled else "float"
    prepared = inputs.prepare(args, files)
    options.check_formats(args, prepared.net.graph, "calibration")
    listed = list(islice(images.places(files, len(prepared.shape)), args.limit))
    todo = numbered(listed)
    calibration: list[Place] = []
    if args.calibration:
        calibration = numbered(images.places(images.find([args.calibration]), len(prepared.shape)))
    elif not compiled and not has_formats(prepared.net.graph):
        calibration = todo[: max(args.batch, IMAGES)]
        basis = Basis(len(calibration), args.bits, options.scheme(args))
        output.say(f"warning: {prepared.net.name} brings no formats: {basis}")
    network = _anywhere(args.net), _anywhere(args.weights)
    reference = (_anywhere(args.reference[0]), _anywhere(args.reference[1])) if args.reference else network
    evaluated = chosen_output(prepared.net, parse(args.output) if args.output else None)
    if evaluated.kind != "boxes":
        refuse(args, ("threshold",), f"where the output is no boxes: {evaluated.blob!r} is of kind {evaluated.kind}")
    job = Job(
        network=network,
        reference=None if is_compiled(reference[0]) else reference,
        devices=asked,
        output=evaluated,
        common=options.reading(args),
        offload={**options.offload(args), "overlay": _anywhere(args.overlay)},
        input=prepared.blob,
        shape=tuple(prepared.shape),
        preprocess=asdict(prepared.preprocess) | ({"mean": ()} if args.mean_file else {}),  # which the workers read
        mean=os.path.abspath(args.mean_file) if args.mean_file else None,
        batch=min(args.batch, len(todo)),
        sample=todo[0][1],
        maps=os.path.abspath(args.truth) if args.truth and evaluated.kind == "map" else None,
        custom=tuple(os.path.abspath(place) for place in (*env().custom, *args.custom)),
        calibration=() if compiled or has_formats(prepared.net.graph) else tuple(calibration),
    ).sealed()
    return job, prepared, todo, [name for _, _, name in listed]


def _anywhere(name: Any) -> Any:
    """Return the absolute path of a file; leave None and the names of shipped things as they are."""
    return os.path.abspath(name) if name is not None and os.path.isfile(name) else name


def _run(args: argparse.Namespace, job: Job, todo: list[Place]) -> tuple[list[Record], list[Record]]:
    """Return the records of all images, including those of the journal, and the records of failures."""
    described = "\n".join(f"{file} {item} {os.path.getsize(file)}" for _, file, item in todo)
    kernels = "of the workers" if args.scheduler else arithmetic()
    run = {**job.key(), "images": sha256(os.fsencode(described)).hexdigest(), "kernels": kernels}
    with Journal(args.journal, run, args.restart) if args.journal else nullcontext() as journal:
        before = journal.records if journal else {}
        if before and not args.quiet:
            output.say(f"{args.journal}: {len(before)} of {number_of(len(todo), 'image')} are done")
        new: list[Record] = []
        with output.meter("images", args.quiet) as tell:

            def done(records: Sequence[Record]) -> None:
                new.extend(records)
                if journal:
                    journal.add([r for r in records if "error" not in r])
                tell(len(new), len(todo) - len(before))

            parts = batches(todo, job.batch, before)
            if parts:
                crew = _crew(args, job, len(parts))
                try:
                    drive(crew, parts, done, proven=bool(before))
                finally:
                    crew.close()
    return [*before.values(), *(r for r in new if "error" not in r)], [r for r in new if "error" in r]


def _crew(args: argparse.Namespace, job: Job, parts: int) -> Crew:
    if args.scheduler:
        from ..evaluate.workers.cluster import Cluster

        if not args.scheduler.startswith("tls://") and not _LOOPBACK.search(args.scheduler):
            output.say(
                "warning: dask runs what it is sent, and nothing proves who sends: trust that network, or use tls://"
            )
        return Cluster(args.scheduler, job, timeout=args.timeout)

    alone = [name for name in job.devices if devices.open(name).alone]
    if alone and args.jobs not in (None, 1):
        raise UsageError(f"--jobs {args.jobs}: device {alone[0]} serves one process at a time", hint="--jobs 1")
    cores = len(os.sched_getaffinity(0)) if not alone else 1
    return Processes(job, min(args.jobs or cores, parts), timeout=args.timeout)


def _files(folders: list[str]) -> Iterator[Path]:
    """Yield image files sorted by name; of a folder its own, then those in its folders."""
    for place in map(Path, folders):
        content = sorted(place.iterdir()) if place.is_dir() else []
        inside = [path for path in content if path.is_dir()]
        own = any(path.is_file() and path.suffix.lower() in (*images.FORMATS, ".npy") for path in content)
        yield from images.find([place, *inside] if own or not inside else inside)
