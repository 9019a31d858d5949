"""Unfolded network inputs: the same codes in fewer passes, and only where nobody else reads the blob."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import chai
from chai import overlay
from chai.artifact.save import save
from chai.blob import Shape, View
from chai.env import env
from chai.errors import ParseError
from chai.fixed import Requantization
from chai.kernels.codes import unfolded
from chai.offload.schedule import DeviceStep, HostStep, Pack, with_plain_inputs
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands
from chai.tasks.unfold import Unfold
from chai.tasks.window import Window
from tests.artifact.common import assembled, custom, load, parts
from tests.codegen.cases import decoded, encoded
from tests.codegen.equality import equal
from tests.codegen.test_memory_map import Segment
from tests.kernels.common import NAMES, used
from tests.passes.common import network
from tests.tasks.common import EXAMPLES, codes, emulated, factors, limited, seeds

Array = np.ndarray
Z2 = overlay.load("pynq-z2")
ONE = Window((1, 1), (1, 1), (0, 0))
LARGE = (2, 3, 26, 37)
CONV7 = "convolution_param { num_output: 5 kernel_size: 7 stride: 2 pad: 3 }"
DATA = np.random.default_rng(0).uniform(-1, 1, LARGE).astype(np.float32)


def conv(rng: np.random.Generator, window: Window, channels: int, outputs: int = 5, group: int = 1) -> Conv:
    """A convolution of ``x`` with random numbers."""
    r = Requantization(factors(rng, (outputs, 1, 1), 20), 20, -128, 127)
    weights = codes(rng, outputs, channels // group, *window.kernel, low=-127)
    return Conv(("x",), "y", ("y",), weights, rng.integers(-(1 << 16), 1 << 16, outputs), window, group, r)


def by_hand(x: Array, unfold: Unfold, zero: int) -> Array:
    """The unfolded blob, element by element."""
    (_, kw), (sh, sw), (ph, pw), _ = unfold.window
    _, c, h, w = x.shape
    out = np.zeros(unfold.shape(x.shape), np.int8)
    for i, j, ch, y, col in np.ndindex(unfold.rows, kw, c, *out.shape[2:]):
        row, column = y * sh + i - ph, col * sw + j - pw
        inside = 0 <= row < h and 0 <= column < w
        out[:, (i * kw + j) * c + ch, y, col] = x[:, ch, row, column] if inside else zero
    return out


@st.composite
def windows(draw: st.DrawFn) -> tuple[Window, tuple[int, int]]:
    """A window, and an image (height, width) in which it has a place."""
    pair = st.tuples(st.integers(1, 7), st.integers(1, 7))
    kernel, stride = draw(pair), draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    pad = draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    h, w = (max(1, k - 2 * p) + draw(st.integers(0, 9)) for k, p in zip(kernel, pad))
    return Window(kernel, stride, pad), (h, w)


@EXAMPLES
@given(chosen=windows(), channels=st.integers(1, 15), all_rows=st.booleans(), seed=seeds)
def test_unfolded_and_plain_are_equal(
    chosen: tuple[Window, tuple[int, int]], channels: int, all_rows: bool, seed: int
) -> None:
    """The blob element by element, the Task by definition, by the emulator and as a descriptor says it."""
    rng = np.random.default_rng(seed)
    window, size = chosen
    task, x = conv(rng, window, channels), codes(rng, 2, channels, *size)
    unfold = Unfold(window, (max if all_rows else min)(Unfold.choices(window)))
    blob = by_hand(x, unfold, 0)
    for variant in (*NAMES, "numpy"):
        with used(variant):
            assert np.array_equal(unfolded(x, unfold, zero=0), blob)
            assert np.array_equal(unfolded(x[:, ::-1], unfold, zero=-128), by_hand(x[:, ::-1], unfold, -128))
    other = task.unfolded(unfold, "x unfolded")
    wanted = task.define(x)
    assert np.array_equal(other.define(blob), wanted)
    shapes = {"x unfolded": blob.shape, "y": wanted.shape}
    assert np.array_equal(emulated([other], {"x unfolded": blob}, shapes)["y"], wanted)
    assert (
        other.macs(blob.shape) == task.macs(x.shape) == 2 * 5 * channels * prod(window.kernel) * prod(wanted.shape[2:])
    )
    back = other.from_plain(unfold, "x")
    assert back is not None and equal(back, task) and back.zero_weights == task.zero_weights
    address = Segment(shapes, {}, [(other.inputs, "y")], ["x unfolded"], ["y"]).lay().blobs
    descriptor, constants = encoded(other, Operands(Z2, address, shapes), 64)
    assert equal(decoded(descriptor, constants, Z2, address, shapes, 64, other), other)


CHOICES: dict[str, tuple[Window, Shape, tuple[Shape, tuple[int, int]] | None]] = {
    "GoogLeNet": (Window((7, 7), (2, 2), (3, 3)), (1, 3, 224, 224), ((1, 42, 115, 112), (4, 1))),
    "AlexNet": (Window((11, 11), (4, 4), (0, 0)), (1, 3, 227, 227), ((1, 132, 57, 55), (3, 1))),
    "SqueezeNet": (Window((3, 3), (2, 2), (0, 0)), (1, 3, 227, 227), ((1, 27, 113, 113), (1, 1))),
    "VGG": (Window((3, 3), (1, 1), (1, 1)), (1, 3, 224, 224), ((1, 9, 226, 224), (3, 1))),
    "grey": (Window((5, 5), (1, 1), (0, 0)), (7, 1, 28, 28), ((7, 5, 28, 24), (5, 1))),
    "1x1": (ONE, (1, 3, 224, 224), None),
    "no fewer passes": (Window((3, 3), (1, 1), (1, 1)), (1, 12, 64, 64), None),
    "as many channels as inputs": (Window((3, 3), (2, 2), (1, 1)), (1, 16, 64, 64), None),
    "dilated": (Window((3, 3), (1, 1), (2, 2), (2, 2)), (1, 3, 64, 64), None),
    "so small that more rows cost too much": (Window((3, 3), (1, 1), (1, 1)), (2, 3, 5, 7), None),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_chosen(name: str) -> None:
    window, source, wanted = CHOICES[name]
    task = conv(np.random.default_rng(0), window, source[1])
    unfold = task.unfolding(Z2, source)
    assert (unfold and (unfold.shape(source), unfold.kernel.kernel)) == wanted


def test_groups_stay_as_they_are() -> None:
    task = conv(np.random.default_rng(0), Window((3, 3), (2, 2), (1, 1)), 6, outputs=4, group=2)
    assert task.unfolding(Z2, (1, 6, 64, 64)) is None


def test_beyond_the_overlays_channels_it_stays_plain() -> None:
    task = conv(np.random.default_rng(0), CHOICES["AlexNet"][0], 3)
    assert task.unfolding(limited(Z2, "conv", channels_max=131), CHOICES["AlexNet"][1]) is None


# -- in a network


def steps(net: chai.Net) -> tuple[list[Pack], list[DeviceStep]]:
    all_steps = net.schedule.steps
    return [s for s in all_steps if isinstance(s, Pack)], [s for s in all_steps if isinstance(s, DeviceStep)]


def opened(folder: Path, lines: str, **options: Any) -> chai.Net:
    net = network(folder, lines, LARGE, device="emulator", **options)
    net.calibrate(DATA)
    return net


FIRST = f"""
    c1 Convolution data -> c1 : {CONV7}
    r1 ReLU c1 -> c1
    p1 Pooling c1 -> p1 : pooling_param {{ pool: MAX kernel_size: 3 stride: 2 }}
    """


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no Task unfold its input."""
    monkeypatch.setattr(Conv, "unfolding", lambda *_: None)


def test_a_network_says_and_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blobs, names in reports, products and checks are those of the plain form; only the packed blob is another one."""
    monkeypatch.setenv("CHAI_CHECK", "1")
    net = opened(tmp_path, FIRST, keep="all")
    net.forward(DATA)
    (pack,), (segment,) = steps(net)
    assert (pack.blob, segment.inputs, segment.tasks[0].inputs) == ("data", ("data unfolded",), ("data unfolded",))
    assert segment.tasks[0].origin == ("c1", "r1")
    with monkeypatch.context() as patch:
        plain(patch)
        other = opened(tmp_path, FIRST, keep="all")
        other.forward(DATA)
    assert steps(other)[1][0].inputs == ("data",)
    assert list(net.blobs) == list(other.blobs) == ["data", "c1", "p1"]
    assert all(np.array_equal(net.blobs[b], other.blobs[b]) for b in other.blobs)
    rows = [[(s.name, s.engine, s.macs, s.reads, s.writes) for s in n.perf.steps] for n in (net, other)]
    assert rows[0] == rows[1]
    assert rows[0][1][2] == 2 * 5 * 147 * prod(net.blobs["c1"].shape[2:])


BESIDE = {
    "another Task": "c2 Convolution data -> c2 : convolution_param { num_output: 3 kernel_size: 5 }",
    "a part of it": f"s Slice data -> a b : slice_param {{ slice_point: 1 }}\nc2 Convolution a -> c2 : {CONV7}",
    "a layer on its codes": "n negate data -> n : user_defined_layer: true",
}


@pytest.mark.parametrize("name", ["another Task", "a layer on its codes"])
def test_a_blob_with_another_reader_stays_plain(tmp_path: Path, name: str) -> None:
    net = opened(tmp_path, FIRST + BESIDE[name], custom=custom())
    packs, segments = steps(net)
    assert [p.unfold for p in packs if p.blob == "data"] == [None]
    assert "data" in segments[0].inputs


def test_a_reader_on_the_host_has_floats_of_its_own(tmp_path: Path) -> None:
    net = opened(tmp_path, FIRST + "t PReLU data -> t")
    slopes = net.params["t"][0].reshape(1, -1, 1, 1)
    assert np.array_equal(net.forward(DATA)["t"], np.where(DATA < 0, slopes * DATA, DATA))
    assert [p.unfold is None for p in steps(net)[0]] == [False]
    assert any(isinstance(s, HostStep) for s in net.schedule.steps)


def test_only_network_inputs(tmp_path: Path) -> None:
    net = opened(tmp_path, "a MVN data -> a\n" + FIRST.replace("data", "a"))
    assert [(p.blob, p.unfold) for p in steps(net)[0]] == [("a", None)]


def test_parallel_convolutions_of_an_input_unfold_together(tmp_path: Path) -> None:
    """Merged first: they are one Task then."""
    net = opened(tmp_path, FIRST + f"c2 Convolution data -> c2 : {CONV7}\nr2 ReLU c2 -> c2")
    (pack,), (segment,) = steps(net)
    assert pack.unfold is not None and segment.inputs == ("data unfolded",)
    assert segment.tasks[0].origin == ("c1", "r1", "c2", "r2")
    assert segment.tasks[0].macs(net.offload.shapes["data unfolded"]) == 2 * 10 * 147 * 13 * 19


@pytest.mark.parametrize("kernels", [*NAMES[:1], "sgemm"])
def test_the_emulator_reads_the_input_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    """Its C takes no fewer products for the unfolded one; numpy does, and whoever checks Tasks checks the overlay's."""
    net = opened(tmp_path, FIRST)
    wanted, size = net.forward(DATA)["p1"], prod(net.offload.shapes["data unfolded"])
    packed = {}
    for check in ("", "1"):
        monkeypatch.setenv("CHAI_CHECK", check)
        env.cache_clear()
        with used(kernels):
            again = opened(tmp_path, FIRST)
            top = again.forward(DATA)["p1"]  # equal by definition, too, if Tasks are checked
        assert np.array_equal(top, wanted)
        assert steps(again)[1][0].inputs == ("data unfolded",)  # what is planned stays the same
        packed[check] = [step.bytes for step in again.perf.steps if step.type == "Pack"]
    assert packed == {"": [size if kernels == "sgemm" else prod(LARGE)], "1": [size]}


def test_an_input_stays_unfolded_where_its_reader_needs_that(tmp_path: Path) -> None:
    """A Task of groups, weights in a row that the kernel does not have, and a blob that is seen in parts."""
    net = opened(tmp_path, FIRST)
    (pack,), (segment,) = steps(net)
    task = segment.tasks[0]
    assert isinstance(task, Conv) and pack.unfold is not None
    weights = np.array(task.weights)
    weights[0, 21, 3, 0] = 1  # the second row of the last pair: row 8 of 7
    assert replace(task, weights=weights).from_plain(pack.unfold, "data") is None
    assert replace(task, group=2).from_plain(pack.unfold, "data") is None
    shapes = net.offload.shapes
    other = with_plain_inputs(
        net.schedule, shapes, lambda unfold, channels: (unfold, channels) == (pack.unfold, shapes["data"][1])
    )
    assert [s.unfold for s in other.steps if isinstance(s, Pack)] == [None]
    assert other.segments[0].inputs == other.segments[0].tasks[0].inputs == ("data",)
    assert with_plain_inputs(net.schedule, shapes, lambda *_: False).steps == net.schedule.steps
    spoilt = segment._replace(tasks=(replace(task, weights=weights), *segment.tasks[1:]))
    pooled = segment._replace(tasks=(task, replace(segment.tasks[1], inputs=task.inputs)))
    for kept in (
        replace(net.schedule, steps=[pack, spoilt]),
        replace(net.schedule, steps=[pack, pooled]),
        replace(net.schedule, views={"part": View("data unfolded", 8)}),
    ):
        assert with_plain_inputs(kept, shapes, lambda *_: True).steps == kept.steps


def test_a_compiled_network_unfolds_too(tmp_path: Path) -> None:
    net = opened(tmp_path, FIRST)
    wanted = net.forward(DATA)
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator")
    assert np.array_equal(again.forward(DATA)["p1"], wanted["p1"])
    assert steps(again)[0][0].unfold == steps(net)[0][0].unfold
    assert [s.macs for s in again.perf.steps] == [s.macs for s in net.perf.steps]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no window": ({"window": [[7, 7], [2, 2]], "rows": 2}, "unfolded by a window of 2 pairs"),
    "a triple": ({"window": [[7, 7], [2, 2, 2], [3, 3], [1, 1]], "rows": 2}, "unfolded by a window of 4 pairs"),
    "no kernel": ({"window": [[0, 7], [2, 2], [3, 3], [1, 1]], "rows": 2}, "cannot be unfolded like this"),
    "a huge stride": ({"window": [[7, 7], [2, 1 << 40], [3, 3], [1, 1]], "rows": 2}, "cannot be unfolded like this"),
    "negative padding": ({"window": [[7, 7], [2, 2], [3, -3], [1, 1]], "rows": 2}, "cannot be unfolded like this"),
    "dilation": ({"window": [[7, 7], [2, 2], [3, 3], [1, 2]], "rows": 2}, "cannot be unfolded like this"),
    "three rows": ({"window": [[7, 7], [2, 2], [3, 3], [1, 1]], "rows": 3}, "cannot be unfolded like this"),
    "all rows": ({"window": [[7, 7], [2, 2], [3, 3], [1, 1]], "rows": 7}, "has another shape"),
    "another stride": ({"window": [[7, 7], [2, 3], [3, 3], [1, 1]], "rows": 2}, "has another shape"),
    "another kernel of this shape": (
        {"window": [[5, 7], [2, 2], [3, 3], [1, 1]], "rows": 2},
        "has another shape|as it is unfolded",
    ),
    "a number": ({"window": 3, "rows": 2}, "expected a list"),
}


def test_another_geometry_in_a_compiled_file_is_refused(tmp_path: Path) -> None:
    net = opened(tmp_path, FIRST)
    save(net, tmp_path / "net.chai")
    header, sections = parts(tmp_path / "net.chai")
    (step,) = (s for s in header["steps"] if s.get("convert") == "Pack")
    task = next(s for s in header["steps"] if "tasks" in s)["tasks"][0]
    good = step["unfold"]

    def refused(words: str) -> None:
        (tmp_path / "bad.chai").write_bytes(assembled(header, sections))
        with pytest.raises(ParseError, match=words):
            load(tmp_path / "bad.chai")

    for geometry, words in WRONG.values():
        step["unfold"] = geometry
        refused(words)
    del step["unfold"]
    refused("no layer writes blob 'data unfolded'")
    step["unfold"] = good
    for zeros in (-1, 5 * 42 * 4 + 1):
        task["zero_weights"] = zeros
        refused(f"task 0: {zeros} of its weights are zeros")
