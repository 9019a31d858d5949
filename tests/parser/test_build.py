"""From layers to a Graph: which layers belong to a phase, who reads what, and how a wrong network is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import chai
from chai import pycaffe
from chai.cli import main
from chai.errors import ChaiError, ModelError, ParseError, PluginError, UnknownLayer
from chai.graph import Graph
from chai.layers.priors import Proposal
from chai.limits import limits
from chai.plugins.layer import CustomLayer

from .common import DATA, PATH, graph, layer, message

RELU = layer("r", "ReLU", "data", "r")


def names(net: Graph) -> list[str]:
    return [v.name for v in net.layers]


def refused(text: str, **state: Any) -> ChaiError:
    with pytest.raises(ChaiError) as caught:
        graph(text, **state)
    assert caught.value.headline.startswith(PATH)
    return caught.value


# -- names


def test_layers_of_one_name_get_numbers() -> None:
    """HED's deploy.prototxt has five layers called crop."""
    text = (
        DATA
        + layer("crop", "ReLU", "data", "a")
        + layer("crop (2)", "ReLU", "a", "a")
        + layer("crop", "ReLU", "a", "b")
    )
    net = graph(text + layer("crop", "ReLU", "b", "b"))
    assert names(net) == ["data", "crop", "crop (2)", "crop (3)", "crop (4)"]
    assert [x.bottoms + x.tops for x in net.layers[2:]] == [
        ("a", "a@crop (2)"),
        ("a@crop (2)", "b"),
        ("b", "b@crop (4)"),
    ]
    assert net.notes == ["layer names used more than once, with numbers here: crop"]


# -- which layers belong to a state


AUTOENCODER = """
layer { name: "data" type: "Data" top: "data" include { phase: TRAIN } transform_param { crop_size: 3 } }
layer { name: "data" type: "Data" top: "data" include { phase: TEST stage: "test-on-train" } transform_param { crop_size: 3 } }
layer { name: "data" type: "Data" top: "data" include { phase: TEST stage: "test-on-test" } transform_param { crop_size: 3 } }
layer { name: "flat" type: "Flatten" bottom: "data" top: "flat" }
"""


def test_the_stage_that_a_network_needs(tmp_path: Path) -> None:
    """The construct of Caffe's mnist_autoencoder."""
    error = refused(AUTOENCODER)
    assert "layer 'flat' reads blob 'data', which layer 'data' would write" in error.headline
    assert "its rules leave it out in phase TEST" in error.headline
    assert error.hint == "add --phase TRAIN or --stage test-on-train or --stage test-on-test"
    assert names(graph(AUTOENCODER, stages=["test-on-test"])) == ["data", "flat"]
    (tmp_path / "net.prototxt").write_text(AUTOENCODER)
    for options in ("--phase TRAIN", "--stage test-on-train", "--stage test-on-test"):
        assert main(["show", str(tmp_path / "net.prototxt"), *options.split()]) == 0


@pytest.mark.parametrize(
    ("rules", "state", "hint"),
    [
        ("exclude { phase: TEST }", {}, "add --phase TRAIN"),
        ("exclude { phase: TEST } exclude { phase: TRAIN }", {}, None),
        ('exclude { stage: "a" }', {"stages": ["a"]}, None),
        ('include { stage: "a" stage: "b c" }', {"stages": ["a"]}, "add --stage 'b c'"),
        ('include { phase: TRAIN stage: "a" }', {}, "add --stage a --phase TRAIN"),
        ('include { stage: "a" not_stage: "b" }', {"stages": ["b"]}, None),
        ("include { min_level: 2 max_level: 4 }", {}, "add Net(level=2)"),
        ("include { max_level: -1 }", {}, "add Net(level=-1)"),
        ("include { min_level: 2 max_level: 1 }", {}, None),
        (
            " ".join(f'include {{ stage: "s{i}" }}' for i in range(9)),
            {},
            "add --stage s0 or --stage s1 or --stage s2 or --stage s3 or another stage",
        ),
    ],
)
def test_what_would_include_a_layer(rules: str, state: dict[str, Any], hint: str | None) -> None:
    out = layer("d", "Data", "", "d", rules)
    assert refused(out + layer("r", "ReLU", "d", "r"), **state).hint == hint
    alone = refused(out, **state).hint
    assert alone == hint or (hint is None and alone is not None and "include or exclude rules" in alone)


@pytest.mark.parametrize(
    ("rules", "state", "kept"),
    [
        ("", {}, True),
        ("include { phase: TEST }", {}, True),
        ("include { phase: TRAIN }", {}, False),
        ("include { phase: TRAIN }", {"phase": "TRAIN"}, True),
        ("exclude { phase: TEST }", {}, False),
        ("exclude { phase: TRAIN }", {}, True),
        ("include { }", {}, True),
        ("exclude { }", {}, False),
        ("include { phase: TRAIN } include { phase: TEST }", {}, True),
        ("include { phase: TRAIN } include { phase: TRAIN }", {}, False),
        ("exclude { phase: TRAIN } exclude { phase: TEST }", {}, False),
        ('include { stage: "deploy" }', {}, False),
        ('include { stage: "deploy" }', {"stages": ["deploy"]}, True),
        ('include { stage: "a" stage: "b" }', {"stages": ["a"]}, False),
        ('include { stage: "a" stage: "b" }', {"stages": ["b", "c", "a"]}, True),
        ('include { stage: "a" } include { stage: "b" }', {"stages": ["b"]}, True),
        ('include { not_stage: "a" }', {}, True),
        ('include { not_stage: "a" not_stage: "b" }', {"stages": ["b"]}, False),
        ('include { phase: TEST stage: "a" }', {"phase": "TRAIN", "stages": ["a"]}, False),
        ('exclude { stage: "a" }', {"stages": ["a"]}, False),
        ('exclude { stage: "a" stage: "b" }', {"stages": ["a"]}, True),
        ("include { min_level: 1 }", {}, False),
        ("include { min_level: 1 }", {"level": 1}, True),
        ("include { max_level: 1 }", {"level": 1}, True),
        ("include { max_level: 1 }", {"level": 2}, False),
        ("include { min_level: -2 max_level: -1 }", {"level": -1}, True),
        ("include { min_level: 0 max_level: 0 }", {}, True),
        ("exclude { min_level: 2 }", {"level": 3}, False),
    ],
)
def test_rules(rules: str, state: dict[str, Any], kept: bool) -> None:
    net = graph(DATA + RELU + layer("x", "ReLU", "data", "x", rules), **state)
    assert ("x" in names(net)) is kept


@pytest.mark.parametrize(
    ("rules", "state", "unread"),
    [
        ("", {}, ""),
        ("", {"stages": ["a"]}, "no include or exclude rule is for stage 'a'"),
        ("", {"stages": "a", "level": 2}, "no include or exclude rule is for stage 'a', level 2"),
        ('include { stage: "a" }', {"stages": ["a"]}, ""),
        ('exclude { not_stage: "a" }', {"stages": ["a"]}, ""),
        (
            'include { stage: "b" } include { not_stage: "a" }',
            {"stages": ["d", "a", "c"]},
            "no include or exclude rule is for stage 'c', stage 'd'; stages of the file: a, b",
        ),
        ("exclude { max_level: -1 }", {"level": 1}, ""),
    ],
)
def test_a_state_that_no_rule_reads(rules: str, state: dict[str, Any], unread: str) -> None:
    """It is a warning of Net, a note of chai show, and nothing in pycaffe, whose programs may name stages for all networks."""
    assert graph(DATA + RELU + layer("x", "ReLU", "data", "x", rules), **state).unread_state == unread


def test_what_no_rule_reads_is_a_warning_but_not_in_pycaffe(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.prototxt").write_text(DATA + RELU)
    pycaffe.Net(tmp_path / "net.prototxt", pycaffe.TEST, stages=["deploy"])
    assert not caplog.records
    chai.Net(tmp_path / "net.prototxt", device="float", stages=["deploy"])
    said = "no include or exclude rule is for stage 'deploy'"
    assert [record.message for record in caplog.records] == [f"{tmp_path / 'net.prototxt'}: {said}"]
    assert main(["show", str(tmp_path / "net.prototxt"), "--stage", "deploy"]) == 0
    output = capsys.readouterr()
    assert f"note     {said}" in output.out and "WEIGHTS" not in output.err


def test_include_and_exclude_together_are_refused() -> None:
    error = refused(DATA + layer("r", "ReLU", "data", "r", "include { } exclude { }"))
    assert "layer 'r' has include and exclude rules" in error.headline
    assert error.layer == "r"


def test_a_phase_that_does_not_exist() -> None:
    with pytest.raises(ModelError, match="expected TRAIN or TEST"):
        graph(DATA + RELU, phase="DEPLOY")


TRAINING = (
    layer("data", "Data", "", "data label", "include { phase: TRAIN } transform_param { crop_size: 9 }")
    + layer("data", "Data", "", "data label", "include { phase: TEST } transform_param { crop_size: 8 }")
    + layer("ip", "InnerProduct", "data", "ip", "inner_product_param { num_output: 2 }")
    + layer("loss", "SoftmaxWithLoss", "ip label", "loss")
    + layer("accuracy", "Accuracy", "ip label", "accuracy", "include { phase: TEST }")
)  # fmt: skip


def test_two_layers_of_one_name_in_two_phases() -> None:
    net = graph(TRAINING)
    assert names(net) == ["data", "ip"]
    assert net.inputs == {"data": (1, 3, 8, 8)}


def test_losses_are_left_to_the_end_with_a_note_and_labels_go_with_them() -> None:
    net = graph(TRAINING)
    assert list(net.inputs) == ["data"]
    assert net.outputs == ["ip"]
    assert "losses and measures, computed if label are fed: loss, accuracy" in net.notes
    assert net.losses is not None and (net.losses.inputs, net.losses.outputs) == ({"label": None}, ["loss", "accuracy"])
    assert net.transforms["data"].crop_size == 8


def test_a_label_that_something_reads_stays_an_input() -> None:
    net = graph(TRAINING + layer("also", "Silence", "label") + layer("twice", "ReLU", "label", "twice"))
    assert list(net.inputs) == ["data", "label"]
    assert net.inputs["label"] is None


def test_what_reads_a_loss_is_computed_with_it() -> None:
    net = graph(TRAINING + layer("r", "ReLU", "loss", "r"))
    assert names(net) == ["data", "ip"]
    assert net.losses is not None and names(net.losses) == ["loss", "accuracy", "r"]


def test_reading_a_loss_that_is_not_computed_says_so() -> None:
    error = refused(TRAINING + layer("m", "MultiBoxLoss", "ip label", "m") + layer("r", "ReLU", "m", "r"))
    expected = "layer 'r' reads blob 'm', which layer 'm' would write, but losses of its type are not computed"
    assert expected in error.headline


def test_only_data_layers_compute_nothing() -> None:
    error = refused(DATA)
    assert "nothing is computed in phase TEST" in error.headline
    assert error.hint is not None
    assert "nothing is computed" in refused(layer("d", "Data", "", "d l", "include { phase: TRAIN }")).headline


def test_a_network_whose_inputs_are_only_data_layers() -> None:
    net = graph(
        layer("d", "ImageData", "", "d l", "image_data_param { new_height: 4 new_width: 5 batch_size: 2 }")
        + layer("m", "MemoryData", "", "m n", "memory_data_param { batch_size: 2 channels: 3 height: 4 width: 5 }")
        + layer("h", "HDF5Data", "", "h", "hdf5_data_param { batch_size: 2 }")
        + layer("y", "DummyData", "", "y z", "dummy_data_param { shape { dim: [2, 1] } }")
        + layer("c", "Concat", "d m h y z n", "c")
    )
    two = (2, 3, 4, 5)
    assert net.inputs == {"d": two, "m": two, "n": (2,), "h": None, "y": (2, 1), "z": (2, 1)}


# -- wiring


def test_in_place_chain() -> None:
    net = graph(
        DATA
        + layer("bn", "BatchNorm", "data", "data")
        + layer("s", "Scale", "data", "data")
        + layer("r", "ReLU", "data", "data")
        + layer("p", "Power", "data", "out")
    )
    assert [(v.bottoms, v.tops) for v in net.layers] == [
        ((), ("data",)),
        (("data",), ("data@bn",)),
        (("data@bn",), ("data@s",)),
        (("data@s",), ("data@r",)),
        (("data@r",), ("out",)),
    ]
    assert net.latest == {"data": "data@r", "out": "out"}
    assert net.outputs == ["out"]
    assert net.caffe_name("data@r") == "data"


def test_every_blob_is_written_once() -> None:
    net = graph(
        DATA
        + layer("x", "ReLU", "data", "data")
        + layer("y", "ReLU", "data", "data@x@x")
        + layer("x@x", "ReLU", "data", "data")
        + layer("z", "ReLU", "data", "data")
    )
    written = [t for v in net.layers for t in v.tops]
    assert len(set(written)) == len(written)


def test_readers_before_and_after_a_change_in_place() -> None:
    net = graph(
        DATA
        + layer("before", "ReLU", "data", "a")
        + layer("change", "ReLU", "data", "data")
        + layer("after", "Eltwise", "data a", "b")
    )
    assert net.layer("before").bottoms == ("data",)
    assert net.layer("after").bottoms == ("data@change", "a")


def test_one_blob_feeds_many_and_one_layer_twice() -> None:
    net = graph(
        DATA + "".join(layer(f"r{i}", "ReLU", "data", f"r{i}") for i in range(5)) + layer("e", "Eltwise", "r0 r0", "e")
    )
    assert [v.bottoms for v in net.layers[1:6]] == [("data",)] * 5
    assert net.layer("e").bottoms == ("r0", "r0")


def test_unconnected_tops_are_the_outputs_in_their_order() -> None:
    net = graph(
        DATA + layer("s", "Slice", "data", "a b c") + layer("r", "ReLU", "b", "d") + layer("q", "ReLU", "data", "e")
    )
    assert net.outputs == ["a", "c", "d", "e"]


def test_a_blob_that_changed_in_place_last_is_an_output() -> None:
    net = graph(DATA + layer("c", "Power", "data", "c") + layer("r", "ReLU", "c", "c"))
    assert (net.outputs, net.output_blobs) == (["c"], ["c@r"])
    assert net.caffe_name("c@r") == "c"


def test_silence_takes_a_blob_from_the_outputs() -> None:
    assert graph(DATA + layer("s", "Slice", "data", "a b c") + layer("q", "Silence", "a c")).outputs == ["b"]


def test_layers_know_their_place() -> None:
    net = graph(DATA + "\n\n" + RELU)
    assert [v.place for v in net.layers] == [f"{PATH}:1", f"{PATH}:4"]


# -- refusals

NEAR = DATA + layer("conv1", "Power", "data", "conv1")


@pytest.mark.parametrize(
    ("text", "kind", "words", "name"),
    [
        (
            NEAR + layer("r", "ReLU", "conv", "r"),
            ParseError,
            "3:40: layer 'r' reads blob 'conv', which no layer above writes (did you mean 'conv1'?)",
            "r",
        ),
        (DATA + layer("r", "ReLU", "zzzzzz", "r"), ParseError, "reads blob 'zzzzzz', which no layer above writes", "r"),
        (DATA + layer("e", "Eltwise", "data b", "c") + layer("f", "ReLU", "c", "b"), ParseError, "reads blob 'b'", "e"),
        (RELU + DATA, ParseError, "reads blob 'data', which no layer above writes", "r"),
        (
            DATA + RELU + layer("q", "Power", "data", "r"),
            ParseError,
            "layer 'q' writes blob 'r', which layer 'r' has written",
            "q",
        ),
        (DATA + DATA.replace('"data" type', '"x" type'), ParseError, "writes blob 'data', which layer 'data' has", "x"),
        (DATA + layer("s", "Split", "data", "a a"), ParseError, "layer 's' has two tops called 'a'", "s"),
        (DATA + layer("r", "ReLU", "data data", "r"), ParseError, "layer 'r' (ReLU) takes 1 bottom, found 2", "r"),
        (DATA + layer("r", "ReLU", "", "r"), ParseError, "layer 'r' (ReLU) takes 1 bottom, found 0", "r"),
        (DATA + layer("r", "ReLU", "data"), ParseError, "layer 'r' (ReLU) takes 1 top, found 0", "r"),
        (DATA + layer("e", "Eltwise", "data", "e"), ParseError, "takes at least 2 bottoms, found 1", "e"),
        (DATA + layer("d", "Scale", "data data data", "d"), ParseError, "takes 1 to 2 bottoms, found 3", "d"),
        (DATA + layer("x", "Input", "data", "x"), ParseError, "layer 'x' (Input) takes 0 bottoms, found 1", "x"),
        (DATA + 'layer { name: "t" bottom: "data" top: "t" }', ParseError, "layer 't' has no type", "t"),
        (DATA + 'layer { name: "t" type: "" }', ParseError, "layer 't' has no type", "t"),
        (DATA + "layer { }", ParseError, "has no type", None),
        (DATA + layer("c", "Convoluton", "data", "c"), UnknownLayer, "type 'Convoluton' has no definition here", "c"),
        (DATA + layer("i", "Input", "", "a b", "input_param { shape {} shape {} shape {} }"), ModelError, "2 tops but 3", "i"),
        (DATA + layer("i", "Input", "", "i", "input_param { shape { dim: 0 } }"), ModelError, "at least 1", "i"),
        (DATA + layer("i", "DummyData", "", "i j"), ModelError, "2 tops but 0 shapes", "i"),
        (DATA + layer("i", "MemoryData", "", "i"), ModelError, "must all be given", "i"),
    ],
)  # fmt: skip
def test_wiring_errors(text: str, kind: type[ChaiError], words: str, name: str | None) -> None:
    error = refused(text)
    assert isinstance(error, kind)
    assert words in error.headline
    assert re.match(rf"{re.escape(PATH)}:\d+:", error.headline)
    assert (error.layer or None) == name


def test_a_wiring_error_marks_the_blob() -> None:
    error = refused(DATA + layer("e", "Eltwise", "data dat", "c"))
    assert isinstance(error, ParseError)
    shown, marked = error.excerpt.splitlines()
    assert shown[marked.index("^") : marked.rindex("^") + 1] == '"dat"'


@pytest.mark.parametrize(
    ("type", "near"),
    [
        ("Convoluton", "Convolution"),
        ("convolution", "Convolution"),
        ("RELU", "ReLU"),
        ("Relu", "ReLU"),
        ("SoftMax", "Softmax"),
        ("innerproduct", "InnerProduct"),
        ("DepthwiseConv", "DepthwiseConvolution"),
    ],
)
def test_an_unknown_type_has_a_near_miss(type: str, near: str) -> None:
    error = refused(DATA + layer("x", type, "data", "x"))
    assert error.hint is not None
    assert error.hint.startswith(f"did you mean {near}")
    assert f'@chai.custom("{type}")' in error.hint


def test_an_unknown_type_without_a_near_miss_says_how_to_define_it() -> None:
    error = refused(DATA + layer("x", "Zzyzx", "data", "x"))
    assert error.hint is not None
    assert error.hint.startswith('to define it yourself: @chai.custom("Zzyzx") and user_defined_layer: true')


def test_an_unknown_type_of_another_phase_does_no_harm() -> None:
    assert names(graph(DATA + RELU + layer("x", "Zzyzx", "data", "x", "include { phase: TRAIN }"))) == ["data", "r"]


def rpn(text: str) -> str:
    """A layer of Faster R-CNN in Python, with a param_str."""
    code = f'python_param {{ module: "rpn.proposal_layer" layer: "ProposalLayer" param_str: "{text}" }}'
    inputs = layer("data", "Input", "", "scores deltas image", "input_param { shape { dim: 1 } }")
    return inputs + layer("p", "Python", "scores deltas image", "rois", code)


@pytest.mark.parametrize(
    ("text", "ratio", "scale"),
    [
        ("'feat_stride': 16", (0.5, 1, 2), (8, 16, 32)),
        ("'feat_stride': 16 \\n'scales': !!python/tuple [4, 8, 16, 32]", (0.5, 1, 2), (4, 8, 16, 32)),
        ("{'feat_stride': 16, 'ratios': [0.333, 1, 3.], 'scales': (2,)}", (0.333, 1, 3), (2,)),
    ],
)
def test_the_proposals_of_faster_rcnn_need_no_python(text: str, ratio: Any, scale: Any) -> None:
    last = graph(rpn(text)).layers[-1]
    assert isinstance(last, Proposal)
    assert last.params == Proposal.Params(16, ratio=ratio, scale=scale, chai_python=True)


@pytest.mark.parametrize(
    "text", ["", "'feat_stride': [8, 16]", "'feat_stride': 1" + "0" * 9, "'feat_stride': 16, 'x': 1"]
)
def test_what_is_no_param_str_of_faster_rcnn(text: str) -> None:
    error = refused(rpn(text))
    assert "layer 'p' (Python): param_str of py-faster-rcnn: expected feat_stride" in error.headline
    assert isinstance(error, ParseError)
    assert error.line == 2


def test_a_class_of_that_name_that_the_user_brings_wins() -> None:
    def rois(x: Any) -> None:
        """Compute nothing."""

    net = graph(rpn(""), custom={"rpn.proposal_layer.ProposalLayer": rois})
    assert isinstance(net.layers[-1], CustomLayer)


def test_a_value_out_of_range_names_the_layer_and_the_place() -> None:
    error = refused(DATA + "\n" + layer("p", "Pooling", "data", "p", "\npooling_param {\n kernel_size: 0 }"))
    assert isinstance(error, ParseError)
    assert error.headline == f"{PATH}:5:15: layer 'p' (Pooling): kernel_size: 0 is outside 1 .. 65535"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            'net: "train_val.prototxt" base_lr: 0.01 max_iter: 100',
            "this is a solver; give the network it names (net: ...)",
        ),
        ("solver_mode: GPU", "this is a solver; give the network it names (net: ...)"),
        ("", None),
        ("# nothing\n", None),
        ('name: "empty"', None),
    ],
)
def test_a_file_without_layers(text: str, hint: str | None) -> None:
    error = refused(text)
    assert "no layer in this file, expected a network" in error.headline
    assert error.hint == hint


def test_the_network_inside_a_solver() -> None:
    """Its layers keep their places in the file; the solver's own fields are none of the network's."""
    text = "base_lr: 0.01\nnet_param {\n" + DATA + RELU + "}\nsolver_mode: GPU"
    assert [(v.name, v.place) for v in graph(text).layers] == [("data", f"{PATH}:3"), ("r", f"{PATH}:4")]
    assert not message(text).unknown


# -- limits


def test_limits_on_layers_ports_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from chai.env import env

    monkeypatch.setenv("CHAI_LIMITS", "layers=3,ports=2,name_length=5")
    env.cache_clear()
    limits.cache_clear()
    assert len(graph(DATA + layer("abcde", "Concat", "data data", "a") + RELU).layers) == 3
    for text, limit in (
        (DATA + RELU * 3, "4 exceeds the limit layers=3"),
        (DATA + layer("c", "Concat", "data data data", "c"), "3 exceeds the limit ports=2"),
        (DATA + layer("s", "Split", "data", "a b c"), "3 exceeds the limit ports=2"),
        (DATA + layer("abcdef", "ReLU", "data", "r"), "6 exceeds the limit name_length=5"),
    ):
        assert limit in refused(text).headline


# -- custom layers


def nothing(x: Any) -> None:
    """A custom function; these tests never run it."""


CUSTOM = "user_defined_layer: true xcustom_param { top_dim: 1 top_dim: 5 float_args: .5 string_args: 'a' }"


def test_a_registered_type() -> None:
    net = graph(DATA + layer("x", "mine", "data", "x", CUSTOM), custom={"mine": nothing})
    mine = net.layer("x")
    assert isinstance(mine, CustomLayer)
    assert mine.type == "mine"
    assert mine.params.top_dim == (1, 5)
    assert mine.params.string_args == ("a",)


def test_a_registered_type_needs_no_flag_unless_it_is_built_in() -> None:
    custom = {"mine": nothing, "ReLU": nothing}
    assert isinstance(graph(DATA + layer("x", "mine", "data", "x"), custom=custom).layer("x"), CustomLayer)
    assert not isinstance(graph(DATA + RELU, custom=custom).layer("r"), CustomLayer)
    flagged = DATA + layer("r", "ReLU", "data", "r", "user_defined_layer: true")
    assert isinstance(graph(flagged, custom=custom).layer("r"), CustomLayer)


def test_the_flag_may_be_false() -> None:
    net = graph(DATA + layer("r", "ReLU", "data", "r", "user_defined_layer: false"), custom={"ReLU": nothing})
    assert not isinstance(net.layer("r"), CustomLayer)


def test_a_flagged_type_that_nobody_registered() -> None:
    with pytest.raises(PluginError) as caught:
        graph(DATA + layer("x", "mini", "data", "x", CUSTOM), custom={"mine": nothing})
    error = caught.value
    assert error.headline.startswith(f"{PATH}:2: layer 'x': type 'mini' is marked user_defined_layer")
    assert error.layer == "x"
    assert error.hint is not None
    assert error.hint.startswith("did you mean 'mine'? registered: mine; looked in: ")
    assert "--custom or CHAI_CUSTOM" in error.hint


def test_a_flagged_built_in_type_that_nobody_registered_is_not_replaced_in_silence() -> None:
    assert isinstance(refused(DATA + layer("r", "ReLU", "data", "r", "user_defined_layer: true")), PluginError)


def test_custom_parameters_are_checked() -> None:
    error = refused(DATA + layer("x", "mine", "data", "x", "xcustom_param { top_dim: 0 }"), custom={"mine": nothing})
    assert "layer 'x' (mine): top_dim: 0 is outside 1" in error.headline


def test_a_python_layer_says_where_its_code_is() -> None:
    param = 'python_param { module: "yolov2" layer: "darknet_reorg" }'
    error = refused(DATA + layer("r", "Python", "data", "r", param))
    assert isinstance(error, UnknownLayer)
    assert "layer 'r': type 'Python'" in error.message
    assert "darknet_reorg of the Python module 'yolov2'" in error.message


def test_what_reads_a_layer_of_another_phase_is_told_so() -> None:
    train = layer("images", "Data", "", "data", "include { phase: TRAIN } data_param { batch_size: 2 }")
    error = refused(train + layer("r", "ReLU", "data", "r"))
    assert "layer 'r' reads blob 'data', which layer 'images' would write" in error.message
    assert "leave it out in phase TEST" in error.message
