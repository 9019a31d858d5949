"""chai run on a video: print, draw, show and save the answers frame by frame."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypedDict

from ..errors import ChaiError, UsageError
from ..frames.playing import Step, Video, VideoFrame, VideoResult
from ..frames.sources import source
from ..frames.view import LiveView, address
from ..frames.writers import Writer, writer
from ..images import drawing
from ..text import number_of
from . import inputs, output
from .answers import Answers, BlobAnswer, BoxesAnswer, MapAnswer, ScoresAnswer, answers_of
from .drawing import drawn, labelled_box
from .parsing import refuse

GRACE = 0.3  # seconds that a step of the network has to end after Ctrl-C; the files are whole by then
QUALITY = 80  # of the JPEGs of --view
NAMED = 10  # boxes of a frame, by name


class FrameAnswer(TypedDict):
    """Results of all outputs for a frame; ``seconds`` are those of the source's clock since its first frame."""

    frame: int
    seconds: float
    outputs: dict[str, ScoresAnswer | BoxesAnswer | MapAnswer | BlobAnswer]


@dataclass(frozen=True)
class VideoRun(output.Schema):
    """Results of a network for a video: each frame's, and how many were read, dropped for newer ones, and shown.

    ``lanes`` has the milliseconds that a frame takes in each; lanes work side by side.
    """

    schema = "chai.video/1"
    network: str
    device: str
    preprocess: str
    source: str
    frames: list[FrameAnswer]
    read: int
    dropped: int
    shown: int
    frames_per_second: float
    lanes: list[Step]
    failed: list[inputs.Failure]


def execute(args: argparse.Namespace) -> int:
    """Load the network and run the video to its end, or until Ctrl-C; return 65 if the source broke off."""
    off = ("batch", "draw", "perf", "repeat", "perf_csv", "trace", "fast_decode")
    refuse(args, off, "for a video", hint="-o out.mp4 draws into its frames")
    place = args.image[0]
    frames = source(place, args.raw)
    if args.output and os.path.realpath(place) == os.path.realpath(args.output):
        raise UsageError(f"-o {args.output} would write into the folder that is read", hint="name another folder")
    view_at = None if args.view is None else address(args.view)
    job = inputs.prepare(args, [Path(frames.name)])
    answers = answers_of(args, job)
    if args.calibration:
        inputs.calibrate(args, job)
    out = writer(args.output) if args.output else None
    view = None if view_at is None else LiveView(*view_at, f"{job.net.name}: {frames.name}")
    try:
        if not args.json:
            output.result(inputs.header(args, job))
        if view is not None:
            if not view.private:
                at = f"{view.host}:{view.port}"
                output.say(f"warning: anyone who has the link sees the frames, and they are not encrypted, on {at}")
            output.say(f"view: {view.link}")
        video = Video(job.net, frames, True if args.live else None, job.preprocess)
        return _Show(args, job, answers, video, out, view).run()
    finally:
        if view is not None:
            view.close()


class _Show:
    """The last lane: draws, prints and saves results in a thread that no signal interrupts."""

    def __init__(
        self,
        args: argparse.Namespace,
        job: inputs.LoadedNetwork,
        answers: Answers,
        video: Video,
        out: Writer | None,
        view: LiveView | None,
    ) -> None:
        self.args, self.job, self.answers, self.video, self.out, self.view = args, job, answers, video, out, view
        self.listing = output.Growing(VideoRun, "frames") if args.json else None
        self.written, self.over = 0, Event()
        self.error: BaseException | None = None

    def run(self) -> int:
        """Show all frames. Ctrl-C ends the video: its files are then whole."""
        thread = Thread(target=self._run, name="chai-draw", daemon=True)
        try:
            thread.start()
            self.over.wait()  # join takes a thread for ended once Ctrl-C has interrupted it
        except (KeyboardInterrupt, SystemExit):  # the latter from SIGTERM
            self.video.stop()
            self.over.wait()
            self._end([])
            self.video.stop.join(GRACE)
            raise
        self.video.close()
        if self.error is None:
            self._end([])
            return 0
        if not isinstance(self.error, ChaiError):
            raise self.error
        self._end([{"file": self.video.source.name, "error": self.error.headline}])
        return output.report(self.error)

    def _run(self) -> None:
        try:
            try:
                for frame, result in self.video:
                    with self.video.counts.timed("draw"):
                        self._show(frame, result)
            finally:
                if self.out is not None:
                    self.out.close()
        except BaseException as error:
            self.error = error
            self.video.stop()
        finally:
            self.over.set()

    def _show(self, frame: VideoFrame, result: VideoResult) -> None:
        answer, maps = self.answers.of_image(result.outputs, 0, 1, result.window)
        if self.listing is not None:
            self.listing.add({"frame": frame.number, "seconds": frame.seconds, "outputs": answer})
        else:
            output.result(f"{frame.number:6d} {frame.seconds:9.3f} s  {_line(answer, self.args.threshold)}")
        if self.out is None and self.view is None:
            return
        image = drawn(frame.image, answer, maps, result.window, self.args.threshold)
        if self.out is not None:
            self.out.add(image, frame.seconds)
            self.written += 1
        if self.view is not None:
            counts = self.video.counts
            first = f"{counts.rate:.1f} frames/s   {counts.dropped} dropped of {counts.read}"
            captioned = drawing.with_lines(image, [(first, None), (self._times(), None)])
            self.view.show(drawing.jpeg(captioned, QUALITY))

    def _times(self) -> str:
        return "   ".join(f"{step.lane} {step.ms:.1f} ms" for step in self.video.counts.steps)

    def _end(self, failed: list[inputs.Failure]) -> None:
        counts, net = self.video.counts, self.job.net
        if self.listing is not None and (counts.shown or not failed):
            self.listing.end({
                "network": net.name, "device": net.device.name, "preprocess": inputs.describe(self.job),
                "source": self.video.source.name, "read": counts.read, "dropped": counts.dropped, "shown": counts.shown,
                "frames_per_second": counts.rate, "lanes": counts.steps, "failed": failed,
            })  # fmt: skip
        elif self.listing is None and counts.shown:
            amount = f"{number_of(counts.shown, 'frame')} shown, {counts.dropped} dropped, {counts.read} read"
            output.result(f"{net.name}   device {net.device.name}   {counts.rate:.1f} frames/second   {amount}")
            output.result(f"a frame   {self._times()}")
        if self.written:
            output.say(f"wrote {self.args.output} ({number_of(self.written, 'frame')})")


def _line(answer: Mapping[str, Any], threshold: float) -> str:
    words: list[str] = []
    for name, summary in answer.items():
        if "boxes" in summary:
            texts = [labelled_box(box).text for box in summary["boxes"] if box["score"] >= threshold]
            more = f", {len(texts) - NAMED} more" if len(texts) > NAMED else ""
            words.append((", ".join(texts[:NAMED]) + more) if texts else "no boxes")
        elif "top" in summary:
            words += [f"{best['label'] or best['index']} {best['score']:.2f}" for best in summary["top"][:1]]
        elif "classes" in summary:
            words.append(", ".join(f"{c['label'] or c['index']} {c['share']:.0%}" for c in summary["classes"]))
        else:
            words.append(f"{name} {summary['min']:g} to {summary['max']:g}")
    return "; ".join(words)
