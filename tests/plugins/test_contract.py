"""CHaiDNN's contract: one function of a type, given one xChangeLayer with its names, returning nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.parser.caffemodel import write_caffemodel
from chai.plugins.xchange import COMPILED, FIELDS
from chai.util.paths import resource

from .common import DATA, SHAPE, compiles, flagged, one, untrained

BLOBS = [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([7, 8, 9, 10])]
PRECISION = (
    'precision_param { quant_type: "DynamicFixed" bw_layer_in: 8 bw_layer_out: 6 bw_params: 8 '
    "fl_layer_in: 5 fl_layer_out: 3 fl_params: 7 }"
)


def trained(folder: Path) -> Path:
    """A caffemodel with BLOBS for the layer ``mine``."""
    write_caffemodel(folder / "w.caffemodel", "t", [("mine", "mine", BLOBS)])
    return folder / "w.caffemodel"


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_every_field(tmp_path: Path, device: str) -> None:
    objects: list[Any] = []
    custom = {"mine": lambda x: (objects.append(x), np.copyto(x.top[0], np.flip(x.bottom[0], 3)))}
    fields = flagged((9, 3, 5, 7), [2.5, -1], ["up", ""]) + PRECISION
    lines = f"before Power data -> p\nmine mine p data -> y : {fields}"
    net = untrained(tmp_path, lines, custom=custom, caffemodel=trained(tmp_path), device=device)
    assert np.array_equal(net.forward(DATA)["y"], DATA[..., ::-1])
    x = objects[-1]
    assert [d.tolist() for d in x.input_dims] == [list(SHAPE)] * 2
    assert [d.tolist() for d in x.output_dims] == [list(SHAPE)] == [x.output_dim.tolist()]  # the run's batch, not 9
    assert [p.shape for p in x.in_ptrs] == [(210,)] * 2 and [p.shape for p in x.out_ptrs] == [(210,)]
    assert [b.shape for b in (*x.bottom, *x.top)] == [SHAPE] * 3
    assert all(np.shares_memory(a, b) for a, b in zip((*x.in_ptrs, *x.out_ptrs), (*x.bottom, *x.top)))
    assert x.float_args.dtype == np.float32 and x.float_args.tolist() == [2.5, -1]
    assert x.string_args == ("up", "")
    assert [p.tolist() for p in x.custom_float_params] == [[0, 1, 2, 3, 4, 5], [7, 8, 9, 10]]
    assert [d.tolist() for d in x.params_dims] == [[2, 3], [4]]
    assert x.n_params == 2 and np.array_equal(x.param(0), BLOBS[0])
    assert [w.tolist() for w in x.wts_ptrs] == [[0, 1, 2, 3, 4, 5]] and x.bias_ptr.tolist() == [7, 8, 9, 10]
    assert (x.layername, x.custom_layer_type, x.kernexecType) == ("mine", "mine", "software")
    assert (x.kernType, x.prev_kernType, x.kernMode, x.prev_kernMode) == (11, -1, 1, 1)
    assert x.qf_format == (8, 5, 6, 3, 8, 7, 0, 0) and x.qf_format.op_fbits == 3
    assert x.float_params.tolist() == [0, 0, 0, 0]
    assert x.input_sizebytes.tolist() == [840, 840] and x.output_sizebytes.tolist() == [840]
    assert x.output_size == 105
    assert [p.tolist() for p in x.pitches] == [[105, 35, 7, 1]] * 2 and x.offset.tolist() == [0, 0]
    assert x.zero_points.tolist() == [0, 0, 0] and x.code_ranges.tolist() == [[0, 0]] * 3  # of codes only
    assert (x.custom_reluflag, x.resize_h, x.resize_w, x.en_batch_size_one, x.layer_done) == (0, 0, 0, 0, 0)
    assert not x.params.any() and x.mean.size == 0 and (x.xtra_ptrs, x.ref_path, x.out_path) == ((), "", "")
    assert len(x.previous) == 2 and len(x.next) == 1
    assert 0 < x.startclk < x.endclk
    assert x.data == {}
    assert {*FIELDS} <= {*vars(x)}
    for array in (x.in_ptrs[0], x.bottom[1], x.custom_float_params[0], x.bias_ptr):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@compiles
def test_every_field_in_compiled_code(tmp_path: Path) -> None:
    """A function that names each field once, so numba has to know its type; numbers are taken from each."""
    terms = {
        "in_ptrs": "x.in_ptrs[0].size", "out_ptrs": "x.out_ptrs[0].size", "bottom": "x.bottom[0].shape[3]",
        "top": "x.top[0].shape[1]", "string_args": "len(x.string_args)", "wts_ptrs": "x.wts_ptrs[0][5]",
        "custom_float_params": "x.custom_float_params[1][3]", "params_dims": "x.params_dims[0][1]",
        "custom_layer_type": "len(x.custom_layer_type)", "layername": "len(x.layername)",
        "kernexecType": "len(x.kernexecType)", "qf_format": "x.qf_format.ip_bw + x.qf_format.op_fbits",
        "bias_ptr": "x.bias_ptr[0]", "mean": "x.mean.size", "params": "x.params.size", "float_args": "x.float_args[0]",
        **dict.fromkeys(("input_dims", "output_dims", "pitches"), "x.{}[0][2]"),
        **dict.fromkeys(("output_dim", "float_params", "input_sizebytes", "output_sizebytes", "offset"), "x.{}[0]"),
        "zero_points": "x.zero_points[1]", "code_ranges": "x.code_ranges[1, 0]",
    }  # fmt: skip
    sums = "".join(f"    s += {terms.get(f, 'x.{}').format(f)}\n" for f in COMPILED)
    (tmp_path / "all.py").write_text(
        f"import chai\n@chai.custom('mine')\ndef mine(x):\n    s = 0.0\n{sums}    x.out_ptrs[0][0] = s\n"
    )
    chai.load_custom(tmp_path / "all.py")
    fields = flagged(SHAPE, [2.5], ["up"]) + PRECISION
    compiled = one(tmp_path, fields, caffemodel=trained(tmp_path)).forward(DATA)["y"].ravel()[0]
    plain = one(tmp_path, fields, caffemodel=trained(tmp_path), jit=False).forward(DATA)["y"].ravel()[0]
    # in the order of the table above, then of COMPILED
    named = (
        210
        + 210
        + 7
        + 3
        + 1
        + 5
        + 10
        + 3
        + 4
        + 4
        + 8
        + (8 + 3)
        + 7
        + 0
        + 128
        + 2.5
        + (5 + 5 + 7)
        + (2 + 0 + 840 + 840 + 0)
    )
    others = 2 + 0 + 11 - 1 + 1 + 1 + 105 + 0 + 0 + 0  # n_params, reluflag, kernType .. en_batch_size_one
    assert compiled == plain == named + others


def text(x: Any) -> None:
    sign = 1 if x.string_args[0] == "up" and x.layername == "mine" else -1
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = sign * x.in_ptrs[0][i]


@compiles
@pytest.mark.parametrize(("word", "sign"), [("up", 1), ("down", -1), ("größer", -1)])
def test_texts_in_compiled_code(tmp_path: Path, word: str, sign: int) -> None:
    chai.custom("mine")(text)
    top = one(tmp_path, flagged(strings=[word])).forward(DATA)["y"]
    assert np.array_equal(top, sign * DATA)


def test_outputs_are_zero_before_the_call(tmp_path: Path) -> None:
    net = one(tmp_path, custom={"mine": lambda x: np.add(x.top[0], 1, out=x.top[0])})
    for _ in range(2):
        assert (net.forward(DATA)["y"] == 1).all()


def test_the_network_gets_a_copy_it_owns(tmp_path: Path) -> None:
    """A layer that keeps its x cannot change results of earlier passes."""
    kept = []
    net = one(tmp_path, custom={"mine": lambda x: (kept.append(x), x.top[0].fill(len(kept)))})
    first = net.forward(DATA)["y"].copy()
    before = net.forward(DATA)["y"]
    kept[0].top[0][...] = 99
    net.forward(DATA)
    assert (first == 1).all() and (before == 2).all()


def test_a_layer_without_its_parameters_says_so() -> None:
    net = chai.Net(resource("prototxt", "digits.prototxt"))  # by path: no weights are taken
    with pytest.raises(chai.PluginError, match="layer 'classifier'") as caught:
        net.forward(np.zeros((1, 1, 8, 8)))
    assert "without its caffemodel" in caught.value.hint


def test_what_is_kept_of_a_custom_layer_in_the_report(tmp_path: Path) -> None:
    net = one(tmp_path, custom={"mine": lambda x: None})
    net.forward(DATA)
    assert [(s.name, s.type, s.engine) for s in net.perf.custom] == [("mine", "mine", "custom")]


def test_every_field_is_documented() -> None:
    assert all(f"``{name}" in chai.xChangeLayer.__doc__ for name in FIELDS)


def test_an_object_says_who_it_is(tmp_path: Path) -> None:
    objects: list[Any] = []
    one(tmp_path, custom={"mine": objects.append}).forward(DATA)
    assert repr(objects[0]) == "<xChangeLayer 'mine' (mine)>"
    with pytest.raises(AttributeError, match="xChangeLayer has no field 'weights'"):
        objects[0].weights  # noqa: B018


@pytest.mark.parametrize("batch", [1, 3])
def test_gemm(tmp_path: Path, batch: int) -> None:
    rng = np.random.default_rng(3)
    weights, bias = rng.standard_normal((11, 30)).astype(np.float32), rng.standard_normal(11).astype(np.float32)
    write_caffemodel(tmp_path / "w.caffemodel", "t", [("fc", "gemm", [weights, bias])])
    fields = flagged((1, 11), [11])
    net = untrained(tmp_path, f"fc gemm data -> y : {fields}", (2, 5, 3, 2), caffemodel=tmp_path / "w.caffemodel")
    x = rng.standard_normal((batch, 5, 3, 2)).astype(np.float32)
    top = net.forward(x)["y"]
    for n in range(batch):
        for m in range(11):
            wanted = float(bias[m]) + sum(float(w) * float(v) for w, v in zip(weights[m], x[n].ravel()))
            assert top[n, m] == pytest.approx(wanted, abs=1e-4)
