"""Layers whose maps an overlay interleaves: the codes that it has without the unit, or with other Tasks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import chai
from chai import cli, overlay as overlays
from chai.artifact.save import save
from tests.conftest import examples
from tests.passes.common import network, prototxt

from .common import Pair

SLOPES = {"": "", "leaky": "\nr ReLU y -> y : relu_param { negative_slope: 0.3 }", "PReLU": "\nr PReLU y -> y"}


def kinds(net: chai.Net) -> list[str]:
    return [task.kind for step in net.schedule.segments for task in step.tasks]


@pytest.fixture(scope="module")
def without_interleave(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default overlay's manifest without the unit, in one file: each path is read and checked anew."""
    manifest = json.loads(overlays.load().path.read_text())
    del manifest["tasks"]["interleave"]
    path = tmp_path_factory.mktemp("overlay") / "overlay.json"
    path.write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize("after", SLOPES)
@settings(max_examples=examples(30))
@given(
    size=st.tuples(st.integers(1, 5), st.integers(1, 6)),
    stride=st.tuples(st.integers(1, 4), st.sampled_from([2, 2, 4])),
    more=st.tuples(st.integers(-1, 2), st.integers(-1, 2)),
    pad=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    outputs=st.integers(1, 9),
    group=st.sampled_from([1, 1, 2, 8]),
    unsigned=st.booleans(),
    seed=st.integers(0, 99),
)
def test_phases_have_the_codes_of_a_map_with_zeros(
    tmp_path_factory: pytest.TempPathFactory,
    without_interleave: Path,
    after: str,
    size: Pair,
    stride: Pair,
    more: Pair,
    pad: Pair,
    outputs: int,
    group: int,
    unsigned: bool,
    seed: int,
) -> None:
    """The same bits, of a top whose size is a multiple of the stride."""
    kernel = [s + s * m + 2 * p for s, m, p in zip(stride, more, pad)]
    assume(all(s * (n - 1) + k - 2 * p >= s and k > p for s, n, k, p in zip(stride, size, kernel, pad)))
    assume(all(k + s - 1 <= 11 for k, s in zip(kernel, stride)))  # with zeros it has so many taps
    m = outputs if group == 1 else group * (1 + outputs % 2)
    fields = {"num_output": m, "group": group}
    for name, pair in (("kernel", kernel), ("stride", stride), ("pad", pad)):
        fields |= {f"{name}_h": pair[0], f"{name}_w": pair[1]}
    text = " ".join(f"{name}: {value}" for name, value in fields.items())
    lines = "c Convolution data -> c : convolution_param { num_output: 8 kernel_size: 1 }\n"
    lines += "p ReLU c -> c\n" if unsigned else ""
    lines += f"y Deconvolution c -> y : convolution_param {{ {text} }}{SLOPES[after]}"
    folder = tmp_path_factory.mktemp("phases")
    x = np.random.default_rng(seed).standard_normal((2, 3, *size)).astype(np.float32)
    plain = network(folder, lines, x.shape, device="emulator", overlay=without_interleave)
    net = network(folder, lines, x.shape, device="emulator")
    (top,), (wanted,) = (each.forward(x).values() for each in (net, plain))
    assert top.tobytes() == wanted.tobytes()
    assert kinds(net)[-1] == "interleave" and "upsample" not in kinds(net)
    assert kinds(plain)[1:] == ["upsample", "conv"]


def with_words(folder: Path, words: int) -> Path:
    """The default overlay's manifest with room for so many words of input."""
    manifest = json.loads(overlays.load().path.read_text())
    manifest["buffers"]["input"]["depth"] = words
    path = folder / f"overlay{words}.json"
    path.write_text(json.dumps(manifest))
    return path


PIECES = {
    "dilation": ("num_output: 5 kernel_size: 3 dilation: 4 pad: 4", (2, 19, 8, 12), 144),
    "dilations of two sizes": (
        "num_output: 16 kernel_h: 3 kernel_w: 2 dilation: 2 dilation: 6 pad_h: 2 pad_w: 6", (2, 16, 6, 10), 40
    ),
    "dilation by channel": ("num_output: 16 group: 16 kernel_size: 3 dilation: 2 pad: 2", (1, 16, 6, 4), 19),
    "dilation beyond the limit": ("num_output: 6 kernel_size: 3 dilation: 16 pad: 16", (1, 3, 32, 16), 8192),
    "channels": ("num_output: 40 group: 40 kernel_size: 3 pad: 1 stride: 2", (2, 40, 7, 9), 60),
    "one word at a time": ("num_output: 37 group: 37 kernel_h: 2 kernel_w: 3", (2, 37, 5, 7), 14),
}  # fmt: skip


@pytest.mark.parametrize("after", SLOPES)
@pytest.mark.parametrize("name", PIECES)
def test_pieces_have_the_codes_of_the_whole(tmp_path: Path, name: str, after: str) -> None:
    """A convolution whose rows do not fit, and the same with room for them."""
    fields, shape, words = PIECES[name]
    lines = f"c Convolution data -> c : convolution_param {{ num_output: {shape[1]} kernel_size: 1 }}\np ReLU c -> c\n"
    lines += f"y Convolution c -> y : convolution_param {{ {fields} }}{SLOPES[after]}"
    x = np.random.default_rng(0).standard_normal((shape[0], 3, *shape[2:])).astype(np.float32)
    net = network(tmp_path, lines, x.shape, device="emulator", overlay=with_words(tmp_path, words))
    (top,) = net.forward(x).values()
    pieces = kinds(net)[1:]
    assert len(pieces) > 1 and len(net.schedule.segments) == 1 and ("interleave" in pieces) == ("dilation" in name)
    manifest = json.loads(with_words(tmp_path, 8192).read_text())
    manifest["tasks"]["conv"] |= {"dilation_max": 16, "pad_max": 16}
    (tmp_path / "large.json").write_text(json.dumps(manifest))
    plain = network(tmp_path, lines, x.shape, device="emulator", overlay=tmp_path / "large.json")
    (wanted,) = plain.forward(x).values()
    assert kinds(plain) == ["conv", "depthwise" if name == "channels" else "conv"]
    assert top.tobytes() == wanted.tobytes()
    save(net, tmp_path / "net.chai")
    with chai.Net(tmp_path / "net.chai", overlay=with_words(tmp_path, words)) as compiled:
        (again,) = compiled.forward(x).values()
    assert again.tobytes() == top.tobytes()


@pytest.mark.parametrize("height", [6, 7])
@pytest.mark.parametrize("levels", [2, 9, 200])
def test_pixels_go_back_to_the_first_of_equal_maxima(tmp_path: Path, levels: int, height: int) -> None:
    """By the codes of the pooling's bottom, of which many are equal if there are few; some windows may end beyond it."""
    lines = (
        "c Convolution data -> c : convolution_param { num_output: 11 kernel_size: 1 }\n"
        "p Pooling c -> p m : pooling_param { pool: MAX kernel_size: 2 stride: 2 }\n"
        "d Convolution p -> d : convolution_param { num_output: 11 kernel_size: 3 pad: 1 }\n"
        "u Upsample d m -> u : upsample_param { upsample_h: HEIGHT upsample_w: 8 }\n"
        "y Convolution u -> y : convolution_param { num_output: 4 kernel_size: 1 }"
    ).replace("HEIGHT", str(height))
    x = np.random.default_rng(levels).integers(-levels, levels + 1, (2, 3, height, 8)).astype(np.float32)
    net = network(tmp_path, lines, x.shape, device="emulator", keep="all")
    net.forward(x)
    assert len(net.schedule.segments) == 1 and net.offload.plan.partition.reasons == {}
    c, p, d, u = (net.blobs[name] for name in "cpdu")
    wanted = np.zeros_like(u)
    ties = 0
    for at in np.ndindex(p.shape):
        n, m, row, column = at
        square = c[n, m, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].ravel()
        assert square.max() == p[at]
        ties += int((square == square.max()).sum() > 1)
        i, j = divmod(int(np.argmax(square)), 2)
        wanted[n, m, 2 * row + i, 2 * column + j] = d[at]
    assert ties > 0 or levels > 100
    step = net.offload.plan.formats["u"].step
    assert np.abs(u - wanted).max() <= 0.501 * step and (u[wanted == 0] == 0).all()


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 32, 6, 10), 2), ((1, 64, 26, 26), 2), ((2, 72, 9, 6), 3), ((1, 16, 5, 3), 1)]
)
def test_squares_become_channels_in_darknets_order(tmp_path: Path, shape: tuple[int, ...], stride: int) -> None:
    """Each code of the bottom, at the place where the float layer moves it."""
    lines = f"c Convolution data -> c : convolution_param {{ num_output: {shape[1]} kernel_size: 1 }}\n"
    lines += f"y Reorg c -> y : reorg_param {{ stride: {stride} }}\n"
    lines += "z Convolution y -> z : convolution_param { num_output: 4 kernel_size: 1 }"
    x = np.random.default_rng(stride).standard_normal((shape[0], 3, *shape[2:])).astype(np.float32)
    net = network(tmp_path, lines, x.shape, device="emulator", keep="all")
    net.forward(x)
    (step,) = net.schedule.segments
    assert net.offload.plan.partition.reasons == {} and sum(task.kind == "copy" for task in step.tasks) >= 2
    reorg = next(layer for layer in net.graph.layers if layer.name == "y")
    (wanted,) = reorg.forward(net.blobs["c"])
    assert net.blobs["y"].tobytes() == wanted.tobytes() and len(np.unique(wanted)) > 50
    save(net, tmp_path / "net.chai")
    with chai.Net(tmp_path / "net.chai", device="emulator") as compiled:
        (again,) = compiled.forward(x).values()
    assert again.tobytes() == net.blobs["z"].tobytes()


def test_show_lists_no_layer_of_several_tasks_as_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only layers that run as one Task: here two convolutions of one blob, one of them a Deconvolution's, and not its sum."""
    fields = "convolution_param { num_output: 8 kernel_size: 2 stride: 2 }"
    lines = f"v Deconvolution data -> v : {fields}\nw Deconvolution data -> w : {fields}\ns Eltwise v v w -> s"
    (tmp_path / "net.prototxt").write_text(prototxt(lines, (1, 8, 40, 50)))
    assert cli.main(["show", str(tmp_path / "net.prototxt"), "--overlay", "pynq-z2", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["segments"] == 1 and content["tasks"] == 5
    assert content["merged"] == [["v", "w"]]
