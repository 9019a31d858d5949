"""Run a batch in a worker: the same network on the same files, on any machine.

Only plain values and file names are sent, so any version of Python and any transport will do. The worker's files and its
chai are compared by checksum before its results count.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import chai

from ... import errors
from ...blob import Array, show
from ...errors import ChaiError, ParseError, UsageError
from ...images import files as images
from ...images.pictures import Feed, in_floats, item_shape, stacked
from ...images.preprocess import PictureWindow, Preprocess
from ...limits import limits
from ...net import Net
from ...overlay import load
from ...plugins import CODE
from ...plugins.loading import load_custom
from ...util.files import digest
from ...zoo import is_compiled
from ...zoo.locate import files_of, locate
from ..kinds import answers_of, measure
from ..maps import IGNORED
from ..measure import Record
from ..outputs import Output
from ..truth import map_file

Place = tuple[int, str, "int | None"]  # index of an image, its file, and its item in a .npy of several images
Answer = dict[str, Any]  # {"records": [...]}, {"lost": "why"} or {"refused": an error}


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs, as plain values.

    ``network``      prototxt (or a shipped network's name) and weights, or a compiled network, to be run in fixed point
    ``reference``    prototxt and weights to be run in float; None without a comparison with float
    ``devices``      devices that run the fixed-point network
    ``output``       the output that is evaluated, as ``outputs.output`` describes it
    ``common``, ``offload``   arguments of both Nets, and of the fixed-point Net only
    ``input``, ``shape``, ``preprocess``, ``mean``   the input blob, its preprocessing, and the file of a mean image
    ``batch``        images per pass. Image i always has slot i % batch, so its numbers do not depend on the other images
    ``calibration``  images to calibrate formats on; empty if the network has formats
    ``sample``       one of the images: a worker without it refuses
    ``maps``         a folder with a PNG of the true classes of each image's pixels; None for other outputs
    ``digests``      digest of every file that the numbers depend on; a worker with other files refuses
    """

    network: tuple[str, str | None]
    reference: tuple[str, str | None] | None
    devices: tuple[str, ...]
    output: Output
    common: Mapping[str, Any]
    offload: Mapping[str, Any]
    input: str
    shape: tuple[int, ...]
    preprocess: Mapping[str, Any]
    mean: str | None
    batch: int
    sample: str
    maps: str | None = None
    custom: tuple[str, ...] = ()
    calibration: tuple[Place, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    version: str = chai.__version__

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the names of the columns; the others are compared with the first."""
        return self.devices if self.reference is None else ("float", *self.devices)

    def sealed(self) -> Job:
        """Return a copy with the digests of this machine's files."""
        return replace(self, digests=self._measured())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Job:
        """Return the Job that these plain values describe."""
        return cls(**_tuples({**content, "output": Output(**content["output"])}))

    def key(self) -> dict[str, Any]:
        """Return everything that the numbers depend on, by name, without the paths of files."""
        places = ("network", "reference", "custom", "calibration", "mean", "sample", "maps", "digests", "version")
        files = {role: value for role, value in self.digests.items() if role != "first image"}
        options = {k: v for k, v in self.to_json().items() if k not in places}
        return {**files, "version of chai": self.version, "options": options}

    def check(self) -> None:
        """Raise UsageError unless this machine has the same chai and the same files."""
        worker, hint = f"worker on {socket.gethostname()}", "all workers need the same files in the same places"
        if self.version != chai.__version__:
            what = f"{worker}: it has chai {chai.__version__}, expected {self.version}"
            raise UsageError(what, hint=f"pip install chai-fpga=={self.version} there")
        try:
            digests = self._measured()
        except (OSError, ChaiError) as error:
            raise UsageError(f"{worker}: {error}", hint=hint) from error
        for role, expected in self.digests.items():
            if digests.get(role) != expected:
                both = f"sha256 {str(digests.get(role))[:12]}, expected {expected[:12]}"
                raise UsageError(f"{worker}: not the same {role} as here ({both})", hint=hint)

    def _measured(self) -> dict[str, str]:
        files: dict[str, list[Path]] = {}
        pairs = {"network": self.network}
        if self.reference not in (None, self.network):
            pairs["reference"] = self.reference
        for role, pair in pairs.items():
            prototxt, weights = locate(*pair, compiled=True)
            files[f"{role} prototxt"] = [*map(Path, files_of(prototxt))]
            files[f"{role} weights"] = [weights] if weights is not None else []
        overlay = self.offload.get("overlay")
        files["overlay manifest"] = [(load(overlay) if overlay is not None else load()).path]
        files["mean image"] = [Path(self.mean)] if self.mean else []
        files["custom layers"] = [f for place in map(Path, self.custom) for f in _code(place)]
        files["calibration images"] = [Path(f) for f in dict.fromkeys(file for _, file, _ in self.calibration)]
        files["true maps"] = sorted(Path(self.maps).glob("*.png")) if self.maps else []
        files["first image"] = [Path(self.sample)]
        digests = {role: _joint(paths) for role, paths in files.items()}
        if names := "\n".join(path.name for path in files["true maps"]):  # which say the image of each
            digests["names of true maps"] = sha256(os.fsencode(names)).hexdigest()
        return digests


def _code(place: Path) -> Iterator[Path]:
    """Yield the files of custom layers in a place: code in a folder, XML files and what they name, with headers."""
    from ...plugins.opencl.reading import read  # which most runs do without

    for file in sorted([*place.glob("*.xml"), *_below(place)]) if place.is_dir() else [place]:
        for layer in read(file) if file.suffix == ".xml" else ():
            yield from (*layer.files, *chain.from_iterable(map(_below, layer.folders)))
        if file.suffix != ".xml":
            yield file


def _below(folder: Path) -> list[Path]:
    """Return the files of code in a folder and those in it. Raises UsageError for more files than custom layers have."""
    code, count = list[Path](), 0
    for place, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > limits().custom_files:
            message = f"custom layers in {str(folder)!r}: " + limits().exceeded("custom_files", count)
            raise UsageError(message, hint="name the folder with the layers alone")
        code += [Path(place, file) for file in files if file.endswith(CODE)]
    return sorted(code)


def _joint(paths: Sequence[Path]) -> str:
    if len(paths) == 1:
        return digest(paths[0])
    return sha256("".join(map(digest, paths)).encode()).hexdigest()


class _Image(NamedTuple):
    """An item of an input, its window in the image, its true classes."""

    item: Feed
    window: PictureWindow
    target: Array | None


class WorkerNetworks:
    """The loaded networks of a Job. Raises the errors of loading them."""

    def __init__(self, job: Job) -> None:
        job.check()
        for place in job.custom:
            load_custom(place)
        mean = images.read_mean(job.mean) if job.mean else job.preprocess["mean"]
        self.job = job
        self.preprocess = Preprocess(**{**_tuples(job.preprocess), "mean": mean})
        shapes = {blob: tuple(shape) for blob, shape in job.common["shapes"].items()}
        common: dict[str, Any] = {**job.common, "shapes": shapes, "batch": job.batch}
        self.measure = measure(job.output)
        keep = [job.output.logits] if job.output.logits is not None else "outputs"
        compiled = is_compiled(job.network[0])  # has its own batch size, and pads its batches
        fixed = {**common, "batch": None} if compiled else common
        with ExitStack() as opened:
            self.nets: dict[str, Net] = {}
            if job.reference is not None:
                exact = Net(job.reference[0], job.reference[1], "float", keep=keep, **common)
                self.nets["float"] = opened.enter_context(exact)
            for device in job.devices:
                net = Net(job.network[0], job.network[1], device, keep=keep, **fixed, **job.offload)
                self.nets[device] = opened.enter_context(net)
            self._calibrate()
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Release the networks, and the board if there is one."""
        self._opened.close()

    def run(self, places: Sequence[Place]) -> list[Record]:
        """Return a Record per image; {"image": index, "error": text} for an image that cannot be read."""
        records: list[Record] = []
        inputs: dict[tuple[int, ...], dict[int, _Image]] = {}
        for index, file, item in places:
            image = self._image(file, item)
            if isinstance(image, str):
                records.append({"image": index, "error": image})
            else:
                inputs.setdefault(item_shape(image.item), {})[index] = image
        for group in inputs.values():
            records += self._compare(group)
        return sorted(records, key=lambda r: int(r["image"]))

    def _compare(self, group: Mapping[int, _Image]) -> list[Record]:
        rows = {index % self.job.batch: image for index, image in group.items()}
        spare = next(iter(rows.values()))
        slots = [rows.get(slot, spare) for slot in range(self.job.batch)]
        feed: dict[str, Feed] = {self.job.input: stacked([image.item for image in slots])}
        if any(net.shapes[self.job.input][1:] != self.job.shape[1:] for net in self.nets.values()):
            feed = dict(in_floats(feed))  # after a .npy of another size, which pictures would not fit
        windows = [image.window for image in slots]
        answers = answers_of(self.measure, self.nets, feed, windows)
        return [
            {"image": index, **self.measure.record(answers[index % self.job.batch], image.window, image.target)}
            for index, image in group.items()
        ]

    def _image(self, file: str, item: int | None) -> _Image | str:
        """Return an image, or the reason why it cannot be read."""
        try:
            feed, window = self._read(file, item)
            return _Image(feed, window, self._target(window, file, item))
        except (ParseError, OSError) as error:
            return error.message if isinstance(error, ParseError) else error.strerror or str(error)

    def _read(self, file: str, item: int | None) -> tuple[Feed, PictureWindow]:
        return images.reader(file, self.preprocess, self.job.shape)(item)

    def _target(self, window: PictureWindow, file: str, item: int | None) -> Array | None:
        """Return the true class of each pixel; None if there is no file with them. Raises ParseError."""
        path = map_file(self.job.maps, file, item) if self.job.maps else None
        if path is None or not path.is_file():
            return None
        target = images.read_classes(path)
        size = int(window.width), int(window.height)
        if target.shape != size[::-1]:
            sizes = f"is {show(target.shape[::-1])}, the image {show(size)} pixels"
            raise ParseError(f"its true map {path} {sizes}", path=file)
        classes, highest = self.job.output.classes, int(target.max(initial=0, where=target != IGNORED))
        if classes is not None and highest >= classes:
            raise ParseError(f"its true map {path} has class {highest}, the network {classes} classes", path=file)
        return target

    def _calibrate(self) -> None:
        inputs: list[Feed] = []
        for _, file, item in self.job.calibration:
            with suppress(ParseError, OSError):
                inputs.append(self._read(file, item)[0])
        if self.job.calibration and not inputs:
            message = "none of the images that formats are to be taken from can be read"
            raise ParseError(message, path=self.job.calibration[0][1], hint="--calibration DIR")
        if len(sizes := {item_shape(item) for item in inputs}) > 1:
            shapes = " and ".join(sorted(map(show, sizes)))
            raise UsageError(f"inputs of {shapes}: formats are taken from inputs of one size", hint="--calibration DIR")
        for net in map(self.nets.__getitem__, self.job.devices if inputs else ()):
            net.calibrate(**{self.job.input: stacked(inputs)})
            net.reshape(**{self.job.input: (self.job.batch, *self.job.shape[1:])})


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


_lock = RLock()  # a dask worker may have several threads, which share the networks
_bench: dict[str, WorkerNetworks] = {}  # of one Job at most


def answer(job: Mapping[str, Any], part: Sequence[Place]) -> Answer:
    """Run a batch, after loading the networks unless the last batch had the same. Never raises an Exception.

    ``refused`` concerns all images (a ChaiError, see ``refusal``), ``lost`` only those of this batch.
    """
    with _lock:
        try:
            bench = _ready(job)
        except ChaiError as error:
            return {"refused": {**vars(error), "kind": type(error).__name__}}
        except Exception as error:
            return {"refused": {"kind": "ChaiError", **vars(ChaiError(f"{type(error).__name__}: {error}"))}}
        try:
            return {"records": bench.run(part)}
        except UsageError as error:
            return {"refused": {**vars(error), "kind": type(error).__name__}}
        except ChaiError as error:
            return {"lost": error.headline}
        except Exception as error:
            return {"lost": f"{type(error).__name__}: {error}"}


def release() -> None:
    """Close the networks, if there are any."""
    with _lock:
        while _bench:
            _bench.popitem()[1].close()


def refusal(fields: Mapping[str, Any]) -> ChaiError:
    """Return the error with which a worker refused a batch, to be raised here."""
    kind = getattr(errors, fields["kind"])
    error: ChaiError = kind.__new__(kind, fields["message"])
    vars(error).update({k: v for k, v in fields.items() if k != "kind"})
    return error


def _ready(job: Mapping[str, Any]) -> WorkerNetworks:
    key = json.dumps(job, sort_keys=True)
    if key not in _bench:
        release()
        _bench[key] = WorkerNetworks(Job.from_json(job))
    return _bench[key]


def numbered(places: Iterable[images.ImagePlace]) -> list[Place]:
    """Return images with numbers and absolute paths, as workers are told of them."""
    return [(index, os.path.abspath(file), item) for index, (file, item, _) in enumerate(places)]
