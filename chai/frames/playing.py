"""Run a network over the frames of a video, with reading, host, overlay and what the caller does side by side.

Frames pass through threads: one reads (for a live source a further one, which keeps the newest frame), one prepares inputs, one
runs ``net.stream``, whose lanes are threads, too. The caller's own thread is the last lane, which draws.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import fsum
from threading import Lock, Semaphore
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..blob import Array, Shape
from ..errors import UsageError
from ..evaluate.outputs import kind_of, source as layer_of
from ..images.boxes import detections
from ..images.pictures import Feed, Pictures
from ..images.preprocess import PictureWindow, Preprocess
from ..kernels.native.library import computing
from ..net import Net
from ..runtime.batches import ahead
from ..util.lazy_numpy import np
from .sources import RawFrame, source as source_of
from .threads import Beside, Newest, Stop, close

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
LANES = 4  # reading, host, overlay, drawing
READING = "read"  # the lane that decodes a frame and makes an input of it
DEPTH = 2  # frames that wait between two threads where no frame is dropped
LOOKS = 10  # every so many frames the times of a pass are looked at


@dataclass(frozen=True)
class VideoFrame:
    """A decoded frame.

    ``name``, ``number``, ``seconds``, ``read``   as in RawFrame
    ``dropped``  how many frames of the source had been dropped when it was taken
    """

    name: str
    number: int
    seconds: float
    read: float
    dropped: int
    image: Image = field(repr=False)

    @property
    def pixels(self) -> Array:
        """Return its pixels, uint8 (H, W, 3) in RGB, or (H, W) if it is gray."""
        return np.asarray(self.image if self.image.mode in ("L", "RGB") else self.image.convert("RGB"))

    @property
    def age(self) -> float:
        """Return the seconds since it was read."""
        return perf_counter() - self.read


@dataclass(frozen=True)
class VideoResult:
    """The answer of a network for a frame.

    ``outputs``  its output blobs, as ``Net.forward`` returns them for one picture
    ``window``   the part of the frame that the network's input shows
    ``boxes``    rows of image (0), class, score, x1, y1, x2, y2 in pixels of the frame, best first, float32 (boxes, 7), classes
                 counted from 0 without a background; None of a network whose output is no boxes
    """

    outputs: dict[str, Array]
    window: PictureWindow
    boxes: Array | None


class Step(NamedTuple):
    """Milliseconds that a frame spends in a lane, on average over those that were looked at."""

    lane: str
    ms: float


@dataclass
class Counts:
    """Frames so far, and the time that they take in each lane.

    ``read`` counts those of the source, ``dropped`` those that a newer one replaced, ``shown`` those whose results were taken.
    """

    read: int = 0
    dropped: int = 0
    shown: int = 0
    spent: dict[str, list[float]] = field(default_factory=dict)  # of each lane: frames, milliseconds
    first: float = 0.0  # when the first and the last result were taken, by perf_counter
    last: float = 0.0
    _lock: Any = field(default_factory=Lock, repr=False)

    def add(self, lane: str, ms: float) -> None:
        frames, sum = self.spent.get(lane, (0, 0.0))
        self.spent[lane] = [frames + 1, sum + ms]

    @contextmanager
    def timed(self, lane: str) -> Iterator[None]:
        """Add the time that a block takes for a frame in a lane."""
        begin = perf_counter()
        yield
        self.add(lane, (perf_counter() - begin) * 1000)

    def drop(self) -> None:
        """Count a frame that was not taken."""
        with self._lock:
            self.dropped += 1

    @property
    def prepared(self) -> int:
        """Return how many frames were decoded."""
        return int(self.spent.get(READING, [0])[0])

    @property
    def steps(self) -> list[Step]:
        return [Step(lane, sum / frames) for lane, (frames, sum) in list(self.spent.items())]

    @property
    def rate(self) -> float:
        """Return the frames a second between the first result and the last; 0 before there are two."""
        return (self.shown - 1) / (self.last - self.first) if self.shown > 1 and self.last > self.first else 0.0


class _Input(NamedTuple):
    """A frame, and what the network gets of it."""

    frame: VideoFrame
    window: PictureWindow
    feed: Feed


class Video(Iterator[tuple[VideoFrame, VideoResult]]):
    """The frames of a source with their results, in order. It ends with the source, with ``close``, or with an error.

    ``counts`` may be looked at meanwhile. As a context it closes itself.
    """

    def __init__(self, net: Net, source: Any, live: bool | None = None, preprocess: Preprocess | None = None) -> None:
        self.net, self.source = net, source_of(source)
        self.live = self.source.live if live is None else live
        self.counts, self.stop = Counts(), Stop()
        self._blob, self._shape, own = _input(net)
        if preprocess is not None and not isinstance(preprocess, Preprocess):
            kind = type(preprocess).__name__
            raise UsageError(f"preprocess: expected a chai.Preprocess, found {kind}", hint="chai.Preprocess(mean=104)")
        self._how = own if preprocess is None else preprocess
        self._boxes = next((name for name in net.outputs if kind_of(net, name) == "boxes"), None)
        self._results = self._begun()

    def __next__(self) -> tuple[VideoFrame, VideoResult]:
        return next(self._results)

    def __enter__(self) -> Video:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "stop"):
            self.stop()

    def close(self) -> None:
        """Stop reading and the network, and wait for their threads."""
        self.stop()
        self.stop.join()

    def _begun(self) -> Iterator[tuple[VideoFrame, VideoResult]]:
        """Yield the results. Of a live source ``LANES`` frames are under way at most, so that none waits for more than these."""
        room = Semaphore(LANES)
        self.stop.when(lambda: room.release(LANES))
        results = Beside(self._passes(room), 1 if self.live else DEPTH, "passes", self.stop)
        try:
            for frame, outputs, window in results:
                now = perf_counter()
                counts = self.counts
                counts.shown, counts.first, counts.last = counts.shown + 1, counts.first or now, now
                yield frame, VideoResult(outputs, window, self._rows(outputs, window))
                room.release()
        finally:
            self.stop()

    def _rows(self, outputs: Mapping[str, Array], window: PictureWindow) -> Array | None:
        if self._boxes is None:
            return None
        return detections(outputs[self._boxes], {0: window}, layer_of(self.net.graph, self._boxes).first_class)

    # -- in threads of their own

    def _passes(self, room: Semaphore) -> Iterator[tuple[VideoFrame, dict[str, Array], PictureWindow]]:
        """Run the network over the frames, after its formats were measured on the first of them if it has none."""
        if self.live:
            raw: Iterator[RawFrame] = Newest(self._read(), self.stop, self.counts.drop)
        else:
            raw = Beside(self._read(), DEPTH, "read", self.stop)
        end = list[Exception]()
        rest = ahead(self.net, _until_error(self._inputs(raw), end), lambda item: {self._blob: item.feed})
        if self.live:
            rest = self._while_room(rest, room)
        inputs = Beside(rest, 1 if self.live else DEPTH, "prepare", self.stop)
        yield from self._run(inputs)
        if end and not self.stop.stopped:
            raise end[0]

    def _while_room(self, inputs: Iterator[_Input], room: Semaphore) -> Iterator[_Input]:
        """Yield inputs while there is room; those that formats were measured on are too old, unless the source ends with them."""
        measured = list(islice(inputs, self.counts.prepared))
        while room.acquire() and not self.stop.stopped:
            item = next(inputs, None) or (measured.pop() if measured else None)
            if item is None:
                return
            for _ in measured:
                self.counts.drop()
            measured.clear()
            yield item

    def _read(self) -> Iterator[RawFrame]:
        for raw in self.source.frames(self.stop):
            self.counts.read += 1
            yield raw

    def _inputs(self, frames: Iterator[RawFrame]) -> Iterator[_Input]:
        for raw in frames:
            with self.counts.timed(READING):
                item = computing(self._input, raw)
            yield item

    def _input(self, raw: RawFrame) -> _Input:
        image, size = raw.picture()
        window = self._how.window(size, self._shape)
        pictures = Pictures(self._how.resized(image, self._shape)[None], self._how)
        frame = VideoFrame(raw.name, raw.number, raw.seconds, raw.read, self.counts.dropped, image)
        return _Input(frame, window, pictures.floats() if self.net.overlay is None else pictures)

    def _run(self, inputs: Beside[_Input]) -> Iterator[tuple[VideoFrame, dict[str, Array], PictureWindow]]:
        under_way = deque[_Input]()

        def feeds() -> Iterator[dict[str, Feed]]:
            for item in inputs:
                under_way.append(item)
                yield {self._blob: item.feed}

        outputs = self.net.stream(feeds(), inputs.ready)
        try:
            for number, output in enumerate(outputs):
                item = under_way.popleft()
                if number % LOOKS == 0:
                    self._look()
                yield item.frame, output, item.window
        finally:
            close(outputs)

    def _look(self) -> None:
        steps = self.net.perf.steps
        for lane, here in (("host", False), ("overlay", True)):
            if spent := [step.ms for step in steps if (step.engine == "fpga") is here]:
                self.counts.add(lane, fsum(spent))


def _until_error(items: Iterator[T], end: list[Exception]) -> Iterator[T]:
    """Yield items until an error, which is added to ``end``: those before it are to be run first."""
    try:
        yield from items
    except Exception as error:
        end.append(error)


def _input(net: Net) -> tuple[str, Shape, Preprocess]:
    """Return the input, its size, and its preprocessing. Raises UsageError for a network that takes no single picture."""
    if not isinstance(net, Net):
        hint = 'chai.video(chai.Net("digits"), source)'
        raise UsageError(f"a video for {type(net).__name__}: expected a chai.Net", hint=hint)
    shapes = net.shapes
    if len(net.inputs) != 1 or not shapes:
        message = f"a video for {net.name}: inputs {', '.join(net.inputs)} of known size are needed to be one"
        raise UsageError(message, hint="Net(..., shapes={blob: shape})")
    blob = net.inputs[0]
    shape = 1, *shapes[blob][1:]
    how = net.card.preprocess_after(net.graph.transforms.get(blob))
    how.check_channels(shape)
    return blob, shape, how


def video(net: Net, source: Any, *, live: bool | None = None, preprocess: Preprocess | None = None) -> Video:
    """Run a network over a video: ``for frame, result in chai.video(net, "clip.mp4")``.

    ``source``      a video file (.mp4, .mkv, .webm, .avi, .ts need PyAV; .mjpeg does not), a folder of pictures, "-" for JPEG or
                    PPM pictures on the standard input, "camera:0" or "/dev/video0", "rtsp://...", or an iterable of arrays, uint8
                    (H, W, 3) in RGB or (H, W)
    ``live``        take the newest frame and drop those before it (default: for cameras and rtsp://)
    ``preprocess``  from a frame to the input (default: the network's own)

    Yields a VideoFrame and a VideoResult in the order of the source. Frames are read, run and used side by side; the number of
    frames under way is bounded. Raises UsageError for a source that is not there, and an error of the source in the place of
    the frame that could not be read, after the results of those before it.
    """
    return Video(net, source, live, preprocess)
