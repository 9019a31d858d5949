"""chai.video: each frame has its own result, in order; what is dropped is counted; errors come in their place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai.errors import ParseError, UsageError
from chai.frames.playing import LANES
from chai.frames.sources import RawFrame
from chai.frames.threads import Stop
from chai.images.boxes import detections
from chai.images.preprocess import whole
from chai.offload.headroom import IMAGES
from tests.conftest import HANG
from tests.detect.shipped import CONVOLUTIONS, is_right
from tests.leftovers import Leftovers

from .common import HEIGHT, WIDTH, clip, detector, jpeg, mjpeg

FRAMES = 480


@pytest.mark.parametrize("device", ["emulator", "float"])
def test_the_digits_of_a_clip_are_found(tmp_path: Path, device: str) -> None:
    """Read from MJPEG, at the default threshold: of 95 % of the frames or more all digits and nothing else, in order.

    The clip's digits are not those that the detector was trained on.
    """
    truths = mjpeg(tmp_path / "clip.mjpeg", FRAMES)
    assert len({frozenset(truth) for truth in truths}) > FRAMES // 2
    assert sum(map(len, truths)) > FRAMES
    net = detector(device)
    with chai.video(net, tmp_path / "clip.mjpeg") as video:
        seen = [(frame, result.boxes) for frame, result in video]
    right = [is_right(boxes, truth) for (_, boxes), truth in zip(seen, truths)]
    assert sum(right) >= 0.95 * FRAMES, [i for i, one in enumerate(right) if not one]
    assert [frame.number for frame, _ in seen] == list(range(FRAMES))
    assert [frame.name for frame, _ in seen[:2]] == ["clip.mjpeg[0]", "clip.mjpeg[1]"]
    assert (video.counts.read, video.counts.shown, video.counts.dropped) == (FRAMES, FRAMES, 0)
    engines = {step.engine for step in net.perf.steps if CONVOLUTIONS & {*step.layers}}
    assert engines == ({"fpga"} if device == "emulator" else {"host"})


def expected(net: chai.Net, frames: Any) -> list[Any]:
    """The boxes of each frame on its own, in its pixels; frames are of the network's size."""
    alone = [net.forward(net.pictures([Image.fromarray(frame)]))["detections"].copy() for frame in frames]
    return [detections(rows, {0: whole(WIDTH, HEIGHT)}) for rows in alone]


def assert_same(boxes: Any, others: Any) -> None:
    assert len(boxes) == len(others)
    for one, other in zip(boxes, others):
        np.testing.assert_array_equal(one, other)


def test_arrays_and_folders_are_sources(tmp_path: Path) -> None:
    net = detector()
    frames = list(clip(9))
    (tmp_path / "frames").mkdir()
    for i, (frame, _) in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / "frames" / f"{i:03}.png")
    calibrate(net)
    wanted = expected(net, [frame for frame, _ in frames])
    assert sum(map(len, wanted)) > 4
    for source in ([frame for frame, _ in frames], tmp_path / "frames", str(tmp_path / "frames")):
        pairs = list(chai.video(net, source))
        assert_same([result.boxes for _, result in pairs], wanted)
        assert all((frame.pixels == array).all() for (frame, _), (array, _) in zip(pairs, frames))


def test_boxes_are_in_pixels_of_the_frame() -> None:
    """A frame of twice the network's size, and one that the letterbox gives borders of 12 pixels left and right."""
    net = detector("float")
    frame, truth = next((frame, truth) for frame, truth in clip(60) if truth and all(d.right <= 72 for d in truth))
    for picture, scale in ((frame.repeat(2, 0).repeat(2, 1), 2), (frame[:, :72], 1)):
        ((shown, result),) = chai.video(net, [picture])
        assert shown.pixels.shape == picture.shape
        larger = [
            digit._replace(**{side: getattr(digit, side) * scale for side in digit._fields[1:]}) for digit in truth
        ]
        assert is_right(result.boxes, larger)


def test_a_network_without_boxes(tmp_path: Path) -> None:
    net = chai.Net("digits")
    rng = np.random.default_rng(3)
    pictures = [rng.integers(0, 256, (8, 8), np.uint8) for _ in range(5)]
    results = list(chai.video(net, pictures))
    assert len(results) == 5
    for (_, result), picture in zip(results, pictures):
        assert result.boxes is None
        np.testing.assert_array_equal(result.outputs["prob"], net.forward(chai.Pictures(picture[None]))["prob"])


class Paced:
    """A live source that hands out a frame whenever the test lets it, and then waits."""

    name, live = "paced", True

    def __init__(self, count: int) -> None:
        self.count, self.more = count, threading.Semaphore(0)
        self.read = 0

    def frames(self, stop: Stop) -> Iterator[RawFrame]:
        stop.when(lambda: self.more.release(self.count))
        for number, (frame, _) in enumerate(clip(self.count)):
            self.more.acquire()
            if stop.stopped:
                return
            self.read += 1
            yield RawFrame(f"paced[{number}]", number, number / 25, frame)


def test_a_result_waits_for_no_later_frame() -> None:
    """The second frame is not there until the test has the first one's result: a pipeline that fills would wait for ever."""
    net = detector()
    calibrate(net)
    wanted = expected(net, [frame for frame, _ in clip(6)])
    source = Paced(6)
    with chai.video(net, source, live=False) as video:
        for number in range(6):
            source.more.release()
            frame, result = next(video)
            assert frame.number == number
            assert_same([result.boxes], [wanted[number]])


@pytest.mark.parametrize("device", ["emulator", "float"])
def test_live_takes_the_newest_and_counts_the_others(device: str) -> None:
    """While the caller holds a frame all others come: only those under way and the newest are shown."""
    net = detector(device)
    calibrate(net)
    source = Paced(60)
    with chai.video(net, source) as video:
        assert video.live
        numbers = []
        source.more.release(20)
        for frame, _ in video:
            numbers.append(frame.number)
            if len(numbers) == 1:
                source.more.release(40)
                wait_until(lambda: source.read == 60)
        counts = video.counts
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 59
    assert counts.dropped + counts.shown == counts.read == 60
    assert len(numbers) <= LANES + 1


def test_live_takes_no_frame_without_room() -> None:
    """The third of these waits until one of the two before it was used."""
    room, taken = threading.Semaphore(2), list[Any]()
    with chai.video(detector("float"), []) as video:
        items = video._while_room(iter("abc"), room)  # type: ignore[arg-type]
        taken += [next(items), next(items)]
        third = threading.Thread(target=lambda: taken.append(next(items)))
        third.start()
        third.join(0.2)
        assert taken == ["a", "b"]
        room.release()
        third.join()
        assert taken == ["a", "b", "c"]


def test_live_measures_formats_on_frames_that_it_drops() -> None:
    """They are old when the network is ready."""
    source = Paced(20)
    with chai.video(detector(), source) as video:
        feeder = threading.Thread(target=one_by_one, args=(source, video))
        feeder.start()
        numbers = [frame.number for frame, _ in video]
        feeder.join()
    assert numbers[0] >= IMAGES
    assert numbers[-1] == 19
    assert video.counts.dropped + video.counts.shown == video.counts.read == 20
    assert video.counts.dropped >= IMAGES


def test_a_live_source_that_ends_while_formats_are_measured_shows_its_newest_frame() -> None:
    frames = [frame for frame, _ in clip(3)]
    with chai.video(detector(), frames, live=True) as video:
        numbers = [frame.number for frame, _ in video]
    assert numbers == [2]
    assert (video.counts.dropped, video.counts.read) == (2, 3)


def one_by_one(source: Paced, video: Any) -> None:
    """Each of the first frames comes when the one before it was decoded."""
    for number in range(source.count):
        source.more.release()
        if number < IMAGES:
            wait_until(lambda: video.counts.prepared > number)  # noqa: B023


def calibrate(net: chai.Net) -> None:
    if net.overlay is not None:
        net.calibrate(net.pictures([Image.fromarray(frame) for frame, _ in clip(3)]))


def wait_until(true: Any) -> None:
    end, pause = perf_counter() + HANG, threading.Event()
    while not true():
        assert perf_counter() < end
        pause.wait(0.01)


def test_a_torn_stream(tmp_path: Path) -> None:
    truths = mjpeg(tmp_path / "clip.mjpeg", 12)
    data = (tmp_path / "clip.mjpeg").read_bytes()
    (tmp_path / "clip.mjpeg").write_bytes(data[:-30])
    seen = []
    with pytest.raises(ParseError, match=r"^clip\.mjpeg: the stream ends inside frame 11$"):
        for _, result in chai.video(detector("float"), tmp_path / "clip.mjpeg"):
            seen.append(result.boxes)
    assert len(seen) == 11
    assert all(map(is_right, seen, truths))


def test_a_frame_that_is_no_picture(tmp_path: Path) -> None:
    frames = [jpeg(frame) for frame, _ in clip(5)]
    frames[3] = b"\xff\xd8\xff\xdb\x00\x04ab\xff\xda\x00\x04cd12345\xff\xd9"
    (tmp_path / "clip.mjpeg").write_bytes(b"".join(frames))
    seen = 0
    with pytest.raises(ParseError, match=r"clip\.mjpeg\[3\]"):
        for _ in chai.video(detector(), tmp_path / "clip.mjpeg"):
            seen += 1
    assert seen == 3


def test_an_error_of_the_network_comes_in_its_place(tmp_path: Path) -> None:
    def fail(x: Any) -> None:
        fail.left -= 1  # type: ignore[attr-defined]
        if not fail.left:  # type: ignore[attr-defined]
            raise ZeroDivisionError
        x.top[0][...] = x.bottom[0]

    fail.left = 4  # type: ignore[attr-defined]
    (tmp_path / "n.prototxt").write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 5 dim: 7 } } }\n'
        'layer { name: "f" type: "f" bottom: "data" top: "y" user_defined_layer: true '
        "xcustom_param { top_dim: [1, 3, 5, 7] } }"
    )
    custom = chai.custom("f", jit=False)(fail)
    net = chai.Net(tmp_path / "n.prototxt", custom={"f": custom}, device="float", jit=False)
    seen = 0
    with pytest.raises(chai.PluginError, match="ZeroDivisionError"):
        for _ in chai.video(net, [np.zeros((5, 7, 3), np.uint8)] * 9):
            seen += 1
    assert seen == 3


@pytest.mark.parametrize("live", [False, True])
def test_nothing_stays_when_the_caller_stops_early(tmp_path: Path, live: bool) -> None:
    net = detector()
    mjpeg(tmp_path / "clip.mjpeg", 30)
    list(chai.video(net, tmp_path / "clip.mjpeg"))  # loads libraries, whose files and threads stay
    before = Leftovers()
    for _ in range(3):
        with chai.video(net, tmp_path / "clip.mjpeg", live=live) as video:
            next(video)
    assert not before, before


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nothing.mp4", "there is no video 'nothing.mp4'"),
        ("camera:123", "there is no camera /dev/video123"),
        ("http://a/b.mp4", "chai reads no video from http://"),
        ("concat:a.mp4|b.mp4", "there is no video"),
        (3, "a video from int"),
        ([np.zeros((4, 4))], "frame 0 is "),
        ([np.zeros((4, 4, 4), np.uint8)], "frame 0 is "),
        ([np.zeros((0, 4, 3), np.uint8)], "frame 0 is uint8 (0, 4, 3)"),
    ],
)
def test_sources_that_are_none(source: Any, words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        list(chai.video(chai.Net("digits"), source))
    assert words in str(refusal.value)


def test_arguments_that_are_none() -> None:
    frames = [np.zeros((8, 8), np.uint8)]
    for net in (None, "digits"):
        with pytest.raises(UsageError, match=rf"a video for {type(net).__name__}: expected a chai\.Net"):
            chai.video(net, frames)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"preprocess: expected a chai\.Preprocess, found dict"):
        chai.video(chai.Net("digits"), frames, preprocess={"scale": 2})  # type: ignore[arg-type]


def test_a_network_that_takes_no_picture(tmp_path: Path) -> None:
    (tmp_path / "two.prototxt").write_text(
        "".join(
            f'layer {{ name: "{n}" type: "Input" top: "{n}" input_param {{ shape {{ dim: 1 dim: 3 dim: 4 dim: 5 }} }} }}'
            for n in "ab"
        )
        + 'layer { name: "s" type: "Eltwise" bottom: "a" bottom: "b" top: "s" }'
    )
    with pytest.raises(UsageError, match="inputs a, b of known size are needed to be one"):
        chai.video(chai.Net(tmp_path / "two.prototxt"), [])


MANY = 10_000


@pytest.mark.slow
@pytest.mark.parametrize("live", [False, True])
def test_ten_thousand_frames_need_no_more_memory_than_five_hundred(live: bool) -> None:
    """Memory in pages of this process after 500 frames and after 10,000; a live source reads four for each that is shown."""
    import resource as memory

    pages = []
    frames = [frame for frame, _ in clip(50)]
    net, room = detector(), threading.Semaphore(8 if live else MANY)
    calibrate(net)
    with chai.video(net, (frames[i % 50] for i in range(MANY) if room.acquire()), live=live) as video:
        for frame, _ in video:
            room.release(4)
            if frame.number >= 500 and not pages:
                pages.append(resident())
    pages.append(resident())
    assert video.counts.read == MANY
    assert (pages[1] - pages[0]) * memory.getpagesize() < 8 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])
