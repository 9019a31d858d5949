"""chai run: run images through a network and print, draw or save its answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypedDict

from ..blob import Array
from ..errors import UsageError
from ..frames.places import WRITTEN, is_video
from ..images import files as images
from ..images.pictures import Feed
from ..offload.headroom import CURE
from ..report import timeline
from ..runtime.batches import ahead
from ..runtime.perf import CSV, Share, Speeds, Spread, StepTime, summary
from ..text import number_of
from ..util.files import complete
from ..util.lazy_numpy import np
from . import inputs, options, output
from .answers import THRESHOLD, Answers, ImageAnswer, answers_of, show
from .drawing import Drawing
from .parsing import option, refuse, section

EPILOG = """examples:
  chai run digits -i photo.png
  chai run googlenet bvlc_googlenet.caffemodel -i cat.jpg --labels synset_words.txt
  chai run mobilenet_ssd -i street.jpg --draw boxes.png
  chai run mobilenet_ssd -i clip.mp4 -o boxes.mp4
  chai run mobilenet_ssd -i camera:0 --view 8000
  chai run net.prototxt net.caffemodel -i photos/ --mean 104,117,123 --batch 8 --json"""
IMAGES = (
    "images, .npy inputs or folders of them; none for a network without inputs; or a video: a file, camera:0, rtsp://, "
    "- for JPEGs, PPMs or --raw frames on standard input"
)
UNSURE = 0.5  # a first answer below this, without known preprocessing is worth a hint


class MeasuredFormats(NamedTuple):
    """Basis of measured formats, and how many of the codes at the overlay's borders are saturated."""

    images: int
    margin: float
    bits: int
    scheme: str
    converted: int
    saturated: int
    cure: str | None


class RowTimes(TypedDict):
    """Milliseconds of one row in the table of a pass, as in Spread."""

    name: str
    median: float
    min: float
    p90: float


class CustomTimes(TypedDict):
    """Milliseconds of a custom or composed layer and of its conversions; ``parts`` are steps of a composed one."""

    name: str
    unpack_ms: float
    custom_ms: float
    pack_ms: float
    parts: list[str]


class Perf(TypedDict):
    """Times of the passes; see ``PerfInfo.to_json``."""

    steps: list[StepTime]
    wall_ms: float
    batch: int
    peak_bytes: int
    blob_bytes: int
    feed_ms: float
    between_ms: float
    converted: int
    saturated: int
    emulated: str | None
    modelled_images_per_second: float | None
    passes: int
    ms_per_image: float
    images_per_second: float
    steps_ms: float
    total_ms: float
    wall: Spread
    rows: list[RowTimes]
    custom_layers: list[CustomTimes]
    shares: dict[str, Share]


@dataclass(frozen=True)
class Run(output.Schema):
    """Results of a network for images."""

    schema = "chai.run/3"
    network: str
    device: str
    preprocess: str
    ms_per_image: float | None
    images: list[ImageAnswer]
    failed: list[inputs.Failure]
    formats: MeasuredFormats | None
    perf: Perf | None


def arguments(parser: argparse.ArgumentParser) -> None:
    options.network(parser)
    options.detector(parser)
    option(section(parser, "input"), "-i --image IMG", IMAGES, nargs="+")
    options.batch(parser, 1)
    options.calibration(parser)
    option(section(parser, "input"), "--random-weights", "run without a caffemodel, e.g. to try the speed")
    options.preprocessing(parser, fast_decode=True)
    options.execution(parser)
    _results(parser)
    _video(parser)
    _timing(parser)


def _results(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "output")
    option(group, "--labels FILE", "names of the classes, one per line; coco or voc", type=Path)
    option(group, "--top N", "classes per image (default: 5), or boxes (default: all)", type=options.count)
    option(
        group,
        "--threshold P",
        "minimum score of boxes to print and draw (default: 0.3; --json lists all that the network has)",
        type=options.fraction,
        default=THRESHOLD,
    )
    option(
        group,
        "--draw OUT",
        "draw boxes, maps or best classes into the images: a .png or .jpg, or a folder",
        type=lambda text: output.file(text, folder=True),  # Drawing compares what it writes with the images
    )
    option(
        group,
        "-o --output FILE",
        "save the output blobs of all images: a .npz; of a video its frames, drawn: .mp4, .mjpeg or a folder",
        type=partial(output.file, folder=True),
    )
    options.as_json(parser)


def _timing(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "timing")
    option(group, "--perf", "print the time of each step, and CHaiDNN's getPerfInfo")
    option(
        group, "--repeat N", "time N passes; print median, min and p90 of every row (default: 1)", type=options.count
    )
    option(group, "--perf-csv FILE.csv", f"save the times, e.g. to {CSV}", type=output.file)
    option(group, "--trace FILE.json", "save the last pass as a timeline for Perfetto or Chrome", type=output.file)


def _video(parser: argparse.ArgumentParser) -> None:
    group = section(parser, "video")
    option(group, "--view PORT", "show the frames in a browser, on 127.0.0.1:PORT; HOST:PORT for others")
    option(group, "--live", "take the newest frame, drop those before it (default: of cameras and rtsp://)")
    option(
        group,
        "--raw HxW",
        "height and width of frames on standard input that are bytes of red, green and blue alone",
        type=options.size,
    )


def _is_video(args: argparse.Namespace) -> bool:
    """Return whether the images are a video, by their name or by what is to become of them. Raises UsageError for several."""
    places = args.image or ()
    out = args.output is not None and args.output.suffix.lower() in WRITTEN
    asked = args.view is not None or args.live or args.raw is not None or out
    video = asked or any(map(is_video, places))
    if video and len(places) != 1:
        raise UsageError(f"{len(places)} inputs: a video is one file, camera, address or folder", hint="-i clip.mp4")
    return video


def execute(args: argparse.Namespace) -> int:
    """Read the options, load the network, read the images, run them and show the network's answers.

    Report and skip an image that cannot be read; the exit code is then 65.
    """
    args.least_score = args.threshold if "threshold" in args.typed else None
    if _is_video(args):
        from . import video  # which images do without

        return video.execute(args)
    files = _files(args)
    drawing = Drawing(args.draw, files, args.threshold) if args.draw else None

    job = inputs.prepare(args, files, alone=True)
    answers = answers_of(args, job)
    if not args.json:
        output.result(inputs.header(args, job))
    if args.calibration:
        inputs.calibrate(args, job)

    failed, feeds, results = list[inputs.Failure](), None, _Results(args, job, answers, drawing)
    items = inputs.items(output.progress(files, len(files), "images", args.quiet), job, failed)
    for parts, feeds in ahead(job.net, inputs.passes(args, items, job), itemgetter(1)):
        results.add(parts, feeds, job.net.forward(feeds))

    results.save()
    if feeds is not None and (args.perf or args.perf_csv or args.trace):
        results.measure(feeds)
    results.end(failed)
    if not args.quiet and results.count:
        results.advise(files)
    return 65 if failed else 0


def _files(args: argparse.Namespace) -> list[Path]:
    if args.repeat is not None and not (args.perf or args.perf_csv):
        raise UsageError(
            "--repeat says how many passes --perf and --perf-csv time", hint=f"--perf --repeat {args.repeat}"
        )
    if args.output and args.output.is_dir():
        raise UsageError(f"cannot write {args.output}: is a folder", hint="name a file in a folder of yours")
    if not args.image:
        refuse(args, (*options.PREPROCESSING, "batch", "calibration", "draw"), "without images", hint="-i IMAGE")
    files = images.find(args.image or (), pipes=not args.draw)  # drawing opens them again
    if files and all(file.suffix.lower() == ".npy" for file in files):
        refuse(args, ("draw",), "for .npy inputs, which are no pictures")
    inputs.check_preprocessing(args, files)
    return files


class _Results:
    """The answers of all images: each is printed and drawn as it comes, blobs and times are kept.

    ``count`` is the number of images, ``best`` has the first probabilities of their answers.
    """

    def __init__(
        self, args: argparse.Namespace, job: inputs.LoadedNetwork, answers: Answers, drawing: Drawing | None
    ) -> None:
        self.args, self.job, self.answers, self.drawing = args, job, answers, drawing
        self.listing = output.Growing(Run, "images") if args.json else None
        self.count, self.best, self.speeds = 0, list[float](), Speeds()
        self.blobs: dict[str, list[Array]] = {name: [] for name in job.net.outputs}

    def add(self, parts: list[images.ImagePart], feeds: Mapping[str, Feed], outputs: Mapping[str, Array]) -> None:
        """Show the outputs of one pass."""
        self.speeds.add(tuple(data.shape for data in feeds.values()), self.job.net.perf)
        parts = parts or inputs.rows(self.args, outputs)
        shown = []
        for i, (name, window) in enumerate(parts):
            answer, maps = self.answers.of_image(outputs, i, len(parts), window)
            image = {"file": name, "outputs": answer}
            shown.append((image, maps, window))
            self.count += 1
            self.best += (a["top"][0]["score"] for a in answer.values() if a.get("probabilities"))
            if self.listing:
                self.listing.add(image)
            else:
                show(image, self.answers.threshold)
        if self.drawing:
            for each in shown:
                self.drawing.add(*each)
        if self.args.output:
            for blob, value in outputs.items():
                self.blobs[blob].append(value)

    def save(self) -> None:
        """Write the blobs, and say which pictures were drawn."""
        if self.drawing:
            self.drawing.report()
        if (path := self.args.output) and self.count:
            from zipfile import ZipFile

            with complete(path) as part, ZipFile(part, "w") as archive:  # np.savez takes no blob that is called "file"
                for name, value in _entries(self.blobs):
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, value)
            output.say(f"wrote {path} ({number_of(self.count, 'image')})")

    def measure(self, feeds: Mapping[str, Feed]) -> None:
        """Time passes of a size that has run before, and save the times."""
        args, net, passes = self.args, self.job.net, []
        for _ in output.progress(range(args.repeat or 1), args.repeat or 1, "passes", args.quiet):
            net.forward(feeds)
            passes.append(net.perf)
        perf = self.speeds.measured = summary(passes)
        if args.perf_csv:
            perf.write_csv(args.perf_csv)
            output.say(f"wrote {args.perf_csv} ({number_of(len(perf.rows), 'row')})")
        if args.trace:
            timeline.save(net.perf, args.trace)
            output.say(f"wrote {args.trace}: open it in ui.perfetto.dev")

    def end(self, failed: list[inputs.Failure]) -> None:
        """Print what all images have in common."""
        net, speeds, formats = self.job.net, self.speeds, self._formats()
        perf = speeds.measured if self.args.perf else None
        if self.listing:
            values = {
                "network": net.name,
                "device": net.device.name,
                "preprocess": inputs.describe(self.job),
                "ms_per_image": speeds.ms_per_image,
                "failed": failed,
                "formats": formats,
                "perf": perf.to_json() if perf is not None else None,
            }
            self.listing.end(values)
        elif self.count:
            line = f"{net.name}   device {net.device.name}   {speeds}"
            if formats is not None and net.basis is not None:
                share = 100 * formats.saturated / max(1, formats.converted)
                cure = f"; better: {formats.cure}" if formats.cure else ""
                line += f"   formats from {net.basis.source}, {share:.2g} % saturated{cure}"
            output.result(line)
            if perf is not None:
                for table in perf.tables():
                    output.table(table.head, table.rows, table.align)
                    output.result("")
                output.result(perf.throughput())
                output.say(*perf.text().removesuffix("\n").split("\n"))

    def _formats(self) -> MeasuredFormats | None:
        """Return the basis of measured formats and how often they saturated; None for those that the network brings."""
        if (basis := self.job.net.basis) is None:
            return None
        converted, saturated = self.speeds.codes
        cure = CURE if saturated or basis.advice else None
        return MeasuredFormats(basis.images, basis.margin, basis.bits, basis.scheme, converted, saturated, cure)

    def advise(self, files: list[Path]) -> None:
        """Print hints about the next step."""
        pictures = any(file.suffix.lower() != ".npy" for file in files)
        if pictures and not self.job.preprocess.chosen and self.best and min(self.best) < UNSURE:
            output.say("hint: the answer is unsure and no preprocessing was given; most networks need their mean:")
            output.say("      --mean 104,117,123 --resize 256x256, or a .toml next to the prototxt")
        if not self.job.labels and self.best:
            output.say("next: --labels FILE names the classes; --perf shows where the time goes")
        elif not self.args.perf:
            output.say(f"next: chai run {self.args.net} ... --perf   shows where the time goes")


def _entries(blobs: Mapping[str, list[Array]]) -> Iterator[tuple[str, Array]]:
    """Yield names and arrays to save: a blob of all passes as one array, or of each pass if their shapes do not join."""
    for name, values in blobs.items():
        if len({value.shape[1:] for value in values}) == 1:
            yield name, np.concatenate([*map(np.atleast_1d, values)])
        else:
            yield from ((f"{name}[{i}]", value) for i, value in enumerate(values))
