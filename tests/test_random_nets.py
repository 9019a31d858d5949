"""Random networks: float against OpenCV and Caffe's formulas, and every way to run fixed point against the others."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest

import chai
from chai import cli
from chai.artifact.save import save
from tests.conftest import examples, report
from tests.random_nets import RandomNet

Array = np.ndarray
FAST, SLOW, PART, AT_ONCE = 150, examples(5000), 500, 50
SHOWN = 6  # one of so many fast networks is printed too, which takes three times as long as all its passes
NEAR = 1e-3  # of a blob's largest value
OPENCV = Path(__file__).parent / "reference" / "opencv.py"


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Each of thousands of networks would warn that it has no formats of its own."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def near(actual: Array, wanted: Array) -> bool:
    return actual.shape == wanted.shape and bool(np.abs(actual - wanted).max() <= NEAR * np.abs(wanted).max())


def same(actual: dict[str, Array], wanted: dict[str, Array], what: str) -> None:
    """The same names in the same order, the same bits."""
    assert list(actual) == list(wanted), what
    for name in wanted:
        assert actual[name].tobytes() == wanted[name].tobytes() and actual[name].shape == wanted[name].shape, (
            what,
            name,
        )


def by_opencv(folders: list[Path]) -> tuple[dict[Path, dict[str, Array]], int]:
    """What OpenCV's outputs are, where it has some, and how many networks ended its process."""
    crashes, left = 0, list(folders)
    while left:
        subprocess.run([sys.executable, OPENCV, *left], capture_output=True, check=False)
        left = [folder for folder in left if not (folder / "opencv.npz").exists()]
        crashes += bool(left)
        left = left[1:]
    answers = {}
    for folder in folders:
        if (folder / "opencv.npz").exists():
            with np.load(folder / "opencv.npz") as file:
                answers[folder] = dict(file)
    return answers, crashes


def float_answers(nets: dict[Path, RandomNet]) -> Counter[str]:
    """Compare each network's float outputs with OpenCV's; where these differ, Caffe's formula decides."""
    pytest.importorskip("cv2", reason='OpenCV is not installed: pip install -e ".[bench]"')
    for folder, net in nets.items():
        net.write(folder)
    answers, crashes = by_opencv(list(nets))
    counts = Counter(nets=len(nets), crashes=crashes)
    for folder, net in nets.items():
        with chai.Net(folder / "net.prototxt", folder / "net.caffemodel", device="float") as exact:
            outputs = exact.forward(**net.inputs)
        assert list(outputs) == net.outputs, net.seed
        assert {name: value.shape for name, value in outputs.items()} == {n: net.shapes[n] for n in net.outputs}
        peer = answers.get(folder, {})
        alike = [near(peer[name], value) for name, value in outputs.items() if name in peer]
        counts["to the last"] += net.outputs[-1] in peer
        if not alike:
            counts["not compared"] += 1
        elif not all(alike):
            counts["differ"] += 1
        if not alike or not all(alike):
            for name, wanted in net.by_formula().items():
                assert near(outputs[name], wanted), (net.seed, name)
    return counts


def fixed_answers(folder: Path, net: RandomNet) -> None:
    """The emulator's first passes, stream, compiled file and keep="all" have the same bits; the .chai file stays."""
    paths = net.write(folder)
    with chai.Net(*paths, device="emulator", calibrate=net.inputs) as plain:
        wanted = plain.forward(**net.inputs)
        assert list(wanted) == net.outputs, net.seed
        same(plain.forward(**net.inputs), wanted, f"{net.seed}: steps in C as one")
        for streamed in plain.stream([net.inputs, net.inputs]):
            same(streamed, wanted, f"{net.seed}: stream")
        save(plain, folder / "net.chai")
        names = set(plain.graph.latest)
    with chai.Net(folder / "net.chai", keep="all") as again:
        same(again.forward(**net.inputs), wanted, f"{net.seed}: .chai")
        fixed = dict(again.blobs.readable)
        assert set(again.blobs) == names
    with chai.Net(*paths, device="emulator", calibrate=net.inputs, keep="all") as whole:
        same(whole.forward(**net.inputs), wanted, f"{net.seed}: keep")
        assert set(whole.blobs) == names
        for name, value in fixed.items():
            assert np.array_equal(value, whole.blobs[name]), (net.seed, name)


def shows(folder: Path, net: RandomNet) -> None:
    """``show`` prints the network in each form."""
    paths = folder / "net.prototxt", folder / "net.caffemodel"
    for arguments in (paths[:1], [*paths, "--overlay", "pynq-z2"], [folder / "net.chai"]):
        assert json.loads(shown(*arguments, "--json"))["outputs"] == net.outputs, (net.seed, arguments)
        assert shown(*arguments), (net.seed, arguments)


def shown(*arguments: Path | str) -> str:
    """What ``chai show`` prints, without a process of its own."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main(["show", *map(str, arguments), "--quiet"]) == 0, arguments
    return out.getvalue()


@pytest.mark.parametrize("first", range(0, FAST, AT_ONCE))
def test_fixed_point_is_one_answer(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        folder, net = tmp_path / str(seed), RandomNet(seed)
        fixed_answers(folder, net)
        if seed % SHOWN == 0:
            shows(folder, net)


def test_float_is_opencvs_or_caffes_formula(tmp_path: Path) -> None:
    counts = float_answers({tmp_path / str(seed): RandomNet(seed) for seed in range(FAST)})
    assert counts["to the last"] >= FAST // 2 and counts["differ"] <= FAST // 50, counts


def test_a_network_has_what_it_is_for() -> None:
    """Else the tests here would pass on nothing."""
    nets = [RandomNet(seed) for seed in range(FAST)]
    types = Counter(step.type for net in nets for step in net.steps)
    assert len(types) == 19 and min(types.values()) >= 5, types
    steps = [step for net in nets for step in net.steps]
    assert sum(step.type == "Concat" and len(step.bottoms) == 1 for step in steps) >= 10
    assert sum(step.type == "Eltwise" and len(set(step.bottoms)) < len(step.bottoms) for step in steps) >= 10
    assert sum(step.tops == step.bottoms for step in steps) >= 50
    assert sum(len(net.outputs) > 1 for net in nets) >= 100


@pytest.mark.parametrize("seed", [0, 7, 57])
def test_a_seed_is_one_network(seed: int, tmp_path: Path) -> None:
    first, second = (RandomNet(seed).write(tmp_path / name) for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert RandomNet(seed + 1).text != RandomNet(seed).text


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(FAST, FAST + SLOW, PART))
def test_thousands(tmp_path: Path, begin: int) -> None:
    total: Counter[str] = Counter()
    for first in range(begin, begin + PART, AT_ONCE):
        nets = {tmp_path / str(seed): RandomNet(seed) for seed in range(first, first + AT_ONCE)}
        total += float_answers(nets)
        for folder, net in nets.items():
            fixed_answers(folder, net)
            shows(folder, net)
            rmtree(folder)
        gc.collect()  # networks are in circles, and each holds files: thousands would be too many
    report(f"random networks from {begin} on: {', '.join(f'{count} {what}' for what, count in total.items())}")
    assert total["nets"] == PART and total["to the last"] >= PART // 2 and total["differ"] <= PART // 25
