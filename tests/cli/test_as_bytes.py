"""chai run and chai evaluate feed pictures as bytes: the answers of preprocessed arrays, in less memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai import Pictures, cli
from chai.cli import evaluate
from chai.evaluate.workers import job
from chai.evaluate.workers.dispatch import Part
from chai.util.paths import resource
from tests.passes.common import prototxt

RNG = np.random.default_rng(11)
SHAPE = (1, 3, 15, 17)
LINES = """c1 Convolution data -> c1 : convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } }
    fc InnerProduct c1 -> fc : inner_product_param { num_output: 6 weight_filler { type: "xavier" } }"""
DIGITS = sorted(resource("prototxt", "digits_images").glob("*.png"))
COUNT = 11  # more than formats are measured on, and no multiple of a batch


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What networks are fed with."""
    inputs: list[Any] = []
    forward = chai.Net.forward

    def watched(self: chai.Net, *data: Any, **named: Any) -> Any:
        (feeds,) = data or (named,)
        inputs.extend(feeds.values())
        return forward(self, *data, **named)

    monkeypatch.setattr(chai.Net, "forward", watched)
    return inputs


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker of chai evaluate is this process."""

    class Here:
        def __init__(self, work: job.Job, jobs: int, timeout: float) -> None:
            self.job, self.answers = json.loads(json.dumps(work.to_json())), list[tuple[Part, job.Answer]]()

        def room(self) -> int:
            return 1 - len(self.answers)

        def give(self, part: Part) -> None:
            self.answers.append((part, job.answer(self.job, part)))

        def wait(self) -> list[tuple[Part, job.Answer]]:
            answers, self.answers = self.answers, []
            return answers

        def close(self) -> None:
            job.release()

    monkeypatch.setattr(evaluate, "Processes", Here)


def photos(folder: Path, count: int = COUNT) -> list[Path]:
    """Pictures in the network's size."""
    (folder / "net.prototxt").write_text(prototxt(LINES, SHAPE))
    (folder / "png").mkdir()
    files = [folder / "png" / f"{i:02}.png" for i in range(count)]
    for file in files:
        Image.fromarray(RNG.integers(0, 256, (*SHAPE[2:], 3), dtype=np.uint8)).save(file)
    return files


def arrays(files: list[Path], folder: Path, numbers: Callable[[np.ndarray], np.ndarray]) -> list[Path]:
    """The same inputs as arrays of ``numbers``."""
    folder.mkdir()
    for file in files:
        np.save(folder / f"{file.stem}.npy", numbers(np.asarray(Image.open(file)).astype(np.float32)))
    return [folder / f"{file.stem}.npy" for file in files]


def printed(capsys: pytest.CaptureFixture[str], *args: Any, code: int = 0) -> dict[str, Any]:
    assert cli.main([*map(str, args), "--json"]) == code
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def outputs(content: dict[str, Any]) -> list[Any]:
    return [image["outputs"] for image in content["images"]]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("device", ["emulator", "float"])
@pytest.mark.parametrize("mean", ["numbers", "image"])
def test_run_gives_the_answers_of_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fed: list[Any], device: str, mean: str, batch: int
) -> None:
    """From bytes on an overlay unless there is a mean image, with the same formats and saturated codes."""
    files = photos(tmp_path)
    image = RNG.uniform(0, 200, SHAPE[1:]).astype(np.float32)
    np.save(tmp_path / "mean.npy", image)
    subtracted = np.float32([104, 117, 123]).reshape(3, 1, 1) if mean == "numbers" else image
    same = arrays(files, tmp_path / "npy", lambda rgb: rgb.transpose(2, 0, 1)[::-1] - subtracted)
    option = ["--mean", "104,117,123"] if mean == "numbers" else ["--mean-file", tmp_path / "mean.npy"]
    args = [
        "run",
        tmp_path / "net.prototxt",
        "--random-weights",
        "--device",
        device,
        "--batch",
        batch,
        "--top",
        6,
        "-i",
    ]
    wanted = printed(capsys, *args, *same)
    assert {type(feed) for feed in fed} == {np.ndarray}
    fed.clear()
    content = printed(capsys, *args, *files, *option)
    as_bytes = device == "emulator" and mean == "numbers"
    assert {type(feed) for feed in fed} == {Pictures if as_bytes else np.ndarray}
    assert sum(feed.shape[0] for feed in fed) == COUNT
    assert outputs(content) == outputs(wanted)
    assert len({image["fc"]["top"][0]["score"] for image in outputs(content)}) == COUNT
    assert content["formats"] == wanted["formats"]


def test_arrays_among_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str], fed: list[Any]) -> None:
    """A batch of both is one of float32."""
    files = photos(tmp_path, 4)
    same = arrays(files, tmp_path / "npy", lambda rgb: rgb.transpose(2, 0, 1)[::-1] * np.float32(0.5))
    args = ["run", tmp_path / "net.prototxt", "--random-weights", "--batch", 2, "--scale", 0.5, "-i"]
    mixed = printed(capsys, *args, files[0], files[1], files[2], same[3])
    assert [type(feed) for feed in fed] == [Pictures, np.ndarray]
    assert outputs(mixed) == outputs(printed(capsys, "run", *args[1:4], 2, "-i", *same))


@pytest.mark.parametrize("device", ["emulator", "float"])
def test_run_reports_what_is_no_picture_in_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    """The images before and after it have the answers that they have without it; formats are from the same images."""
    files = photos(tmp_path, 12)
    args = ["run", tmp_path / "net.prototxt", "--random-weights", "--device", device, "--batch", 2, "-i"]
    wanted = printed(capsys, *args, *files[:5], *files[6:])
    files[5].write_bytes(files[5].read_bytes()[:80])
    content = printed(capsys, *args, *files, code=65)
    assert content["images"] == wanted["images"]
    assert [failure["file"] for failure in content["failed"]] == [str(files[5])]


@pytest.mark.parametrize("device", ["emulator", "float"])
def test_a_mean_of_another_size_is_refused_at_the_first_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    files = photos(tmp_path, 3)
    files[1].write_bytes(b"no picture")
    args = ["run", tmp_path / "net.prototxt", "--random-weights", "--device", device, "--batch", 3, "--mean", "1,2"]
    assert cli.main([*map(str, args), "-i", *map(str, files)]) == 2
    words = capsys.readouterr().err
    assert "the mean is 2; expected 3 numbers" in words
    assert "no readable image" not in words


def test_reading_ahead_holds_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats are measured on 8 images before the first runs: these are bytes, and numbers one by one."""
    files, sizes = photos(tmp_path), list[int]()
    floats = Pictures.floats

    def watched(self: Pictures) -> np.ndarray:
        sizes.append(self.shape[0])
        return floats(self)

    monkeypatch.setattr(Pictures, "floats", watched)
    args = ["run", tmp_path / "net.prototxt", "--random-weights", "--batch", 4, "--json", "-i", *files]
    assert cli.main([*map(str, args)]) == 0
    assert sizes == [1] * 8


@pytest.mark.parametrize("mean", [(), ("--mean", "77"), "file"])
def test_evaluate_gives_the_figures_of_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], here: None, fed: list[Any], mean: Any
) -> None:
    """Of scores, KL and SQNR to the last digit: formats, float side and codes are the same."""
    files = DIGITS[:COUNT]
    shift = np.float32(77 if mean else 0)
    if mean == "file":
        shift = RNG.uniform(0, 90, (1, 8, 8)).astype(np.float32)
        np.save(tmp_path / "mean.npy", shift)
        mean = ("--mean-file", tmp_path / "mean.npy")
    scale = np.float32(1 / 256)
    same = arrays(files, tmp_path / "npy", lambda gray: (gray[None] - shift) * scale)
    args = ["evaluate", "digits", "--batch", 4, "--device", "emulator", "--device", "null", "--jobs", 1, "--images"]
    journals = [tmp_path / "arrays.jsonl", tmp_path / "pictures.jsonl"]
    wanted = printed(capsys, *args, *same, "--journal", journals[0])
    fed.clear()
    content = printed(capsys, *args, *files, *mean, "--scale", 1 / 256, "--journal", journals[1])
    assert {type(feed) for feed in fed} == {np.ndarray if "--mean-file" in mean else Pictures}
    assert len(fed) == 3 * 3
    assert content["devices"] == wanted["devices"]
    assert content["images"] == COUNT
    records = [journal.read_text().splitlines()[1:] for journal in journals]
    assert records[0] == records[1]
    assert len(records[0]) == COUNT


def test_evaluate_measures_formats_image_by_image(
    capsys: pytest.CaptureFixture[str], here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[int]()
    floats = Pictures.floats

    def watched(self: Pictures) -> np.ndarray:
        sizes.append(self.shape[0])
        return floats(self)

    monkeypatch.setattr(Pictures, "floats", watched)
    printed(capsys, "evaluate", "digits", "--batch", 5, "--jobs", 1, "--images", *DIGITS[:COUNT])
    assert sizes == [1] * 8 + [5] * 3  # the formats', and the float side's


def test_a_journal_of_slow_decoding_is_none_of_fast_decoding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], here: None
) -> None:
    files = [tmp_path / f"{file.stem}.jpg" for file in DIGITS[:5]]
    for file, digit in zip(files, DIGITS):
        Image.open(digit).save(file)
    args = ["evaluate", "digits", "--jobs", 1, "--images", *files, "--journal", tmp_path / "j.jsonl"]
    printed(capsys, *args)
    options = json.loads((tmp_path / "j.jsonl").read_text().splitlines()[0])["options"]
    assert options["preprocess"]["fast_decode"] is False
    assert cli.main([*map(str, args), "--fast-decode"]) == 2
    assert "journal" in (words := capsys.readouterr().err) and "of another run: its options differ" in words
    assert printed(capsys, *args, "--restart", "--fast-decode")["preprocess"].endswith(", fast decode")
    options = json.loads((tmp_path / "j.jsonl").read_text().splitlines()[0])["options"]
    assert options["preprocess"]["fast_decode"] is True
