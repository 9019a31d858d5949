"""Load a network and feed images to it, for all commands that take images."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import ClassVar, TypedDict

from ..blob import Array, Shape, show
from ..errors import MissingWeights, ParseError, UsageError
from ..evaluate.outputs import box_classes, kind_of, source
from ..images import files as images
from ..images.files import ImagePart
from ..images.pictures import Feed, in_floats, stacked
from ..images.preprocess import OPTIONS, Preprocess
from ..kernels.native.library import lost
from ..net import Net
from ..runtime.perf import Spread, spread
from ..text import number_of
from ..util.data import npy
from ..zoo import is_compiled, is_onnx
from ..zoo.fetch import how_to_get
from ..zoo.locate import locate
from . import options, output
from .parsing import refuse

# its mean, and 1 / its standard deviations, of pixels from 0 to 255
TORCHVISION = "--channels RGB --mean 123.675,116.28,103.53 --scale 0.0171248,0.017507,0.0174292 --resize 256x256"

RUNS = 10  # timed passes of a demo


class Failure(TypedDict):
    """Input that could not be read or run."""

    file: str
    error: str


@dataclass(frozen=True)
class LoadedNetwork:
    """A loaded network, its input blob, "" if it has none, and the preprocessing of images for it."""

    net: Net
    blob: str
    shape: Shape
    preprocess: Preprocess
    labels: Sequence[str]


def prepare(args: argparse.Namespace, files: list[Path], alone: bool = False) -> LoadedNetwork:
    """Load the network of the arguments and choose its preprocessing and labels. Raises UsageError.

    ``alone``: a network without inputs will do, which has no images.
    """
    file: Path | None = getattr(args, "labels", None)
    labels = images.read_labels(file) if file else None
    mean = images.read_mean(args.mean_file) if args.mean_file else args.mean
    net, blob, shape = _load(args, files, alone)
    transform = net.graph.transforms.get(blob)
    steps = {**{name: getattr(args, name) for name in OPTIONS}, "mean": mean}
    preprocess = net.card.preprocess_after(transform).with_options(**steps)
    preprocess = replace(preprocess, fast_decode=getattr(args, "fast_decode", False))
    if transform is not None and transform.mean_file and mean is None:
        name = transform.mean_file
        output.say(f"warning: the network names a mean file ({name}); it is read only if you name it: --mean-file FILE")
    if not preprocess.chosen and _photos(shape, files) and is_onnx(net.graph.path) and not args.quiet:
        output.say(
            f"hint: no preprocessing is known; torchvision's for ImageNet is {TORCHVISION}, or a .toml next to the file"
        )
    if blob and file and labels is not None:
        _compare_labels(net, labels, file)
    return LoadedNetwork(net, blob, shape, preprocess, net.card.labels if labels is None else labels)


class TrainedNet(Net):
    """A Net whose layers have their weights."""

    _lacking: ClassVar[str] = "none"


def _load(args: argparse.Namespace, files: list[Path], alone: bool) -> tuple[Net, str, Shape]:
    """Return the network, its input and the input's shape. Raises UsageError for layers without weights."""
    random = getattr(args, "random_weights", False)
    path, weights = locate(args.net, args.weights, compiled=True, adjacent=not random)
    compiled = is_compiled(path)
    if weights not in (None, path) and path == Path(args.net):
        args.weights = str(weights)
    if weights is not None:
        refuse(args, ("random_weights",), f"where there are weights: {weights}")
    if args.verbose or getattr(args, "perf", False):
        tell_kernels()
    sizes = {} if compiled else {"batch": min(args.batch, len(files) or args.batch)}
    sizes |= {"device": args.device, "keep": "outputs", **options.offload(args)}
    try:
        net: Net = options.load_network(args, Net if random else TrainedNet, **sizes)
        options.check_custom(args, net.graph)
        return net, *_input(args, net, files, alone)
    except MissingWeights:
        if weights is not None:
            raise
        raise _no_weights(args) from None


def _input(args: argparse.Namespace, net: Net, files: list[Path], alone: bool) -> tuple[str, Shape]:
    """Return the only input and its shape, nothing of a network ``alone``. Raises UsageError for several inputs."""
    if alone and not net.inputs:
        if files:
            raise UsageError(f"{net.name} has no input for images", hint=f"chai run {args.net} without -i runs it")
        return "", ()
    if alone and not files:
        raise UsageError(f"{net.name} needs images", hint=f"-i IMAGE, for input {net.inputs[0]}")
    if len(net.inputs) != 1:
        raise UsageError(
            f"{net.name} has {len(net.inputs)} inputs ({', '.join(net.inputs)}); this command feeds one",
            hint="use chai.Net(...).forward(...) from Python",
        )
    blob = net.inputs[0]
    if not net.shapes:  # the prototxt leaves it open
        if not all(file.suffix == ".npy" for file in files):
            raise UsageError(
                f"the prototxt does not say the size of input {blob!r}", hint=f"--shape {blob}=1x3x224x224"
            )
        shape = npy.mapped(files[0]).shape
        net.reshape(**{blob: shape if len(shape) == 4 else (1, *shape)})
    return blob, net.shapes[blob]


def tell_kernels() -> None:
    """Say what is slower without kernels in C; nothing where there are some."""
    if slower := lost():
        output.say(f"note: {slower}")


def check_preprocessing(args: argparse.Namespace, files: Iterable[Path]) -> None:
    """Raise UsageError for options of preprocessing if all inputs are arrays, which are used unchanged; or no one is a JPEG."""
    kinds = {file.suffix.lower() for file in files}
    if kinds <= {".npy"}:
        refuse(args, options.PREPROCESSING, "for .npy inputs, which are taken as they are")
    if all(images.FORMATS.get(kind, "JPEG") != "JPEG" for kind in kinds - {".npy"}):
        refuse(args, ("fast_decode",), "where no image is a JPEG")


def latency(net: Net, feed: Feed) -> Spread:
    """Return the spread of the milliseconds of RUNS passes of one image, after a warm-up pass."""
    times = []
    for _ in range(RUNS + 1):
        net.forward(feed)
        times.append(net.perf.ms_per_image)
    return spread(times[1:])


def warn_of_defaults(job: LoadedNetwork, files: Iterable[Path]) -> None:
    """Warn on stderr if photos go into a network whose preprocessing is unknown."""
    if _photos(job.shape, files) and not job.preprocess.chosen:
        output.say(
            f"warning: no preprocessing is known for {job.net.name}; most networks of photos need their "
            "mean, and formats are chosen for what they are given"
        )
        if not is_onnx(job.net.graph.path):  # which has its own hint
            output.say("hint: --mean 104,117,123 --resize 256x256, or a .toml next to the prototxt")


def _photos(shape: Shape, files: Iterable[Path]) -> bool:
    """Return whether pictures in colour are fed."""
    return len(shape) == 4 and shape[1] == 3 and any(file.suffix.lower() != ".npy" for file in files)


def _compare_labels(net: Net, labels: Sequence[str], path: Path) -> None:
    """Warn if no output has as many classes as there are labels, which may begin with that of the background of boxes."""
    count = len(labels)
    while count and not labels[count - 1]:  # empty lines at the end
        count -= 1
    numbers = {
        name: max(shape[1:])
        for name, shape in net.shapes.items()
        if name in net.outputs and kind_of(net, name) == "scores" and prod(shape[1:]) == max(shape[1:], default=0) > 1
    }
    backgrounds = 0
    for name in net.outputs:
        if kind_of(net, name) == "boxes" and (boxes := box_classes(net, layer := source(net.graph, name))) is not None:
            numbers[name], backgrounds = boxes, max(backgrounds, layer.first_class)
    if numbers and not any(classes <= count <= classes + backgrounds for classes in numbers.values()):
        name, classes = next(iter(numbers.items()))
        output.say(
            f"warning: {path} has {number_of(count, 'label')}, {name} has {number_of(classes, 'class')}: "
            + ("classes without a label are shown by number" if count < classes else "they may belong to other classes")
        )


def _no_weights(args: argparse.Namespace) -> UsageError:
    """Return the error for a missing caffemodel; the hint is where published ones are, else what does without."""
    rest = {"chai compile": "-o NET.chai", "chai evaluate": "--images", "chai quantize": "--calibration"}
    otherwise = "or --random-weights, to try the speed" if hasattr(args, "random_weights") else None
    return UsageError(
        f"no weights: {args.prog} {args.net} WEIGHTS.caffemodel {rest.get(args.prog, '-i')} ...",
        hint=how_to_get(args.net) or otherwise,
    )


def calibrate(args: argparse.Namespace, job: LoadedNetwork) -> None:
    """Choose the formats on the images of --calibration."""
    files = images.find([args.calibration])
    inputs = singles(output.progress(files, len(files), "calibration", args.quiet), job)
    first = next(inputs, None)
    if first is None:
        raise UsageError(f"--calibration {args.calibration}: no image there can be read", hint="see the errors above")
    size = job.net.shapes[job.blob]
    job.net.calibrate(chain((first,), inputs))
    job.net.reshape(**{job.blob: size})  # one image at a time was measured, of a .npy maybe of another size


def singles(files: Iterable[Path], job: LoadedNetwork) -> Iterator[dict[str, Feed]]:
    """Yield what to feed of each image alone; report those that cannot be read."""
    return ({job.blob: stacked([item])} for _, item in items(files, job, []))


def items(files: Iterable[Path], job: LoadedNetwork, failed: list[Failure]) -> Iterator[tuple[ImagePart, Feed]]:
    """Yield every image as one item of an input; report those that cannot be read, and add them to ``failed``."""

    def unread(file: Path, error: ParseError) -> None:
        output.report(error)
        failed.append({"file": str(file), "error": error.message})

    return images.items(files, job.preprocess, job.shape, unread)


def passes(
    args: argparse.Namespace, items: Iterable[tuple[ImagePart, Feed]], job: LoadedNetwork
) -> Iterator[tuple[list[ImagePart], Mapping[str, Feed]]]:
    """Return what the inputs of each pass show and what to feed; of a network without inputs one pass, of nothing."""
    if not job.blob:
        yield [], {}
        return
    floats = job.net.overlay is None
    for parts, data in images.batches(items, args.batch):
        fed = {job.blob: data}
        floats = floats or data.shape[1:] != job.shape[1:]  # a .npy; pictures after it would not fit its size
        yield parts, in_floats(fed) if floats else fed  # before the pass, which is timed


def feeds(
    args: argparse.Namespace, items: Iterable[tuple[ImagePart, Feed]], job: LoadedNetwork, files: Sequence[Path]
) -> Iterator[dict[str, Array]]:
    """Yield what to feed of ``passes``, in float32. Raises ParseError if none of the files could be read."""
    feed = None
    for _, feed in passes(args, items, job):
        yield in_floats(feed)
    if feed is None:
        raise ParseError("none of the images can be read", path=str(files[0]))


def rows(args: argparse.Namespace, outputs: Mapping[str, Array]) -> list[ImagePart]:
    """Return a name for each row of the outputs of a network without inputs: as many as all outputs have."""
    counts = {len(value) if value.ndim else 1 for value in outputs.values()}
    count = counts.pop() if len(counts) == 1 else 1
    return [ImagePart(f"{args.net}[{i}]" if count > 1 else str(args.net)) for i in range(count or 1)]


def header(args: argparse.Namespace, job: LoadedNetwork) -> str:
    """Return the line that shows network, input and preprocessing."""
    if not job.blob:
        return f"{args.net}   {describe(job)}"
    note = "" if job.preprocess.chosen else "   (default: no preprocessing was given)"
    return f"{args.net}   input {job.blob} {show(job.shape[1:])}   {describe(job)}{note}"


def describe(job: LoadedNetwork) -> str:
    """Return the preprocessing, or the shape of an input that is no image."""
    if not job.blob:
        return "no input"
    return job.preprocess.describe(job.shape) if len(job.shape) == 4 and job.shape[1] in (1, 3) else show(job.shape)
