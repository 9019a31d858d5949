"""The decorator's options, one by one, against arrays computed another way; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.plugins.definition import plain_type
from tests.passes.common import network

from .common import DATA, SHAPE, compiles, flagged, frame, one


def nothing(x: Any) -> None:
    """A layer that leaves its tops zero."""


def ramp(x: Any) -> None:
    """The index of every element, in the order the function sees them."""
    for i in range(x.out_ptrs[0].size):
        x.out_ptrs[0][i] = i + x.in_ptrs[0][i] * 0


# -- layout and dtype


@compiles
@pytest.mark.parametrize("jit", [True, False])
def test_nhwc_is_brought_in_and_back(tmp_path: Path, jit: bool) -> None:
    seen = []
    custom = chai.custom("mine", layout="NHWC", jit=jit)(ramp)
    custom.setup(lambda x: None)

    @custom.impl("look", layout="NHWC", jit=False, when=lambda x: len(seen) == 0 and not jit)
    def look(x: Any) -> None:
        seen.append([x.bottom[0].shape, x.top[0].shape, x.input_dims[0].tolist(), x.pitches[0].tolist()])
        seen.append(x.bottom[0].copy())
        ramp(x)

    n, c, h, w = SHAPE
    top = one(tmp_path).forward(DATA)["y"]
    for index in np.ndindex(SHAPE):
        b, k, y, z = index
        assert top[index] == ((b * h + y) * w + z) * c + k
    if not jit:
        assert seen[0] == [(n, h, w, c), (n, h, w, c), [n, h, w, c], [h * w * c, w * c, c, 1]]
        assert all(seen[1][b, y, z, k] == DATA[b, k, y, z] for b, k, y, z in np.ndindex(SHAPE))


def test_nhwc_leaves_blobs_of_other_ranks_alone(tmp_path: Path) -> None:
    custom = chai.custom("mine", layout="NHWC", jit=False)(lambda x: np.copyto(x.top[0], x.bottom[0].mean((1, 2))))
    top = one(tmp_path, flagged((1, 3))).forward(DATA)["y"]
    assert custom.implementations[0].layout == "NHWC"
    assert np.allclose(top, DATA.mean((2, 3)), atol=1e-6)


def test_float16_in_numpy(tmp_path: Path) -> None:
    seen = []

    @chai.custom("mine", dtype="float16", jit=False)
    def mine(x: Any) -> None:
        seen.append((x.in_ptrs[0].dtype, x.out_ptrs[0].dtype))
        x.top[0][...] = x.bottom[0] / 3

    top = one(tmp_path).forward(DATA)["y"]
    assert seen == [(np.float16, np.float16)]
    assert top.dtype == np.float32
    assert np.array_equal(top, (DATA.astype(np.float16) / np.float16(3)).astype(np.float32))
    assert not np.array_equal(top, DATA / 3)


# -- memory


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_per_image(tmp_path: Path, batch: int) -> None:
    seen = []

    @chai.custom("mine", per_image=True, jit=False, args={"images": "I.B"})
    def mine(x: Any, images: int) -> None:
        assert images == 1
        seen.append((x.input_dims[0].tolist(), x.output_dims[0].tolist(), x.bottom[0].shape, x.in_ptrs[0].size))
        x.top[0][...] = x.bottom[0] - x.bottom[0].mean()

    data = np.random.default_rng(1).standard_normal((batch, *SHAPE[1:])).astype(np.float32)
    top = one(tmp_path).forward(data)["y"]
    assert seen == [([1, 3, 5, 7], [1, 3, 5, 7], (1, 3, 5, 7), 105)] * batch
    for image, original in zip(top, data):
        assert np.array_equal(image, original - original.mean())


def test_per_image_needs_tops_of_each_image(tmp_path: Path) -> None:
    """Each call would overwrite what the last has written."""

    @chai.custom("mine", per_image=True, jit=False)
    def mine(x: Any) -> None: ...

    mine.shape(lambda x: [(4, 35)])
    with pytest.raises(chai.ModelError, match="called once for each of 2 images, but its top of 4x35 is not that of 2"):
        network(tmp_path, "mine mine data -> y : user_defined_layer: true", SHAPE)


def test_inplace_starts_from_a_copy(tmp_path: Path) -> None:
    @chai.custom("mine", inplace=True, jit=False)
    def mine(x: Any) -> None:
        x.top[0][:, 1] *= 10
        x.top[0][0, 0, 0, 0] = x.bottom[0][0, 0, 0, 0] + 1

    net = network(tmp_path, f"mine mine data -> data : {flagged()}\nabs AbsVal data -> y", SHAPE, keep="all")
    data = DATA.copy()
    top = net.forward(data)["y"]
    wanted = DATA.copy()
    wanted[:, 1] *= 10
    wanted[0, 0, 0, 0] += 1
    assert np.array_equal(top, np.abs(wanted))
    assert np.array_equal(data, DATA)  # what the user gave is theirs
    assert np.array_equal(net.blobs["data"], wanted)


def test_inplace_needs_tops_as_large_as_their_bottoms(tmp_path: Path) -> None:
    chai.custom("mine", inplace=True, jit=False)(nothing)
    with pytest.raises(chai.ShapeError, match=r"layer 'mine' \(mine\): inplace: .*2x3x5x7.*2x3x7x7") as caught:
        one(tmp_path, flagged((2, 3, 7, 7)))
    assert caught.value.layer == "mine"


def test_a_prototxt_may_write_in_place_without_the_option(tmp_path: Path) -> None:
    chai.custom("mine", jit=False)(lambda x: np.multiply(x.bottom[0], 2, out=x.top[0]))
    net = network(tmp_path, f"mine mine data -> data : {flagged()}\nabs AbsVal data -> y", SHAPE)
    assert np.array_equal(net.forward(DATA)["y"], np.abs(2 * DATA))


def with_scratch(x: Any, sums: Any, pair: Any, k: int) -> None:
    pair[0] += 1  # scratch is the layer's own, from call to call
    for c in range(sums.size):
        sums[c] = 0
    n, channels = x.input_dims[0][0], x.input_dims[0][1]
    length = x.in_ptrs[0].size // (n * channels)
    for i in range(x.in_ptrs[0].size):
        sums[i // length % channels] += x.in_ptrs[0][i]
    for i in range(x.out_ptrs[0].size):
        x.out_ptrs[0][i] = sums[i // length % channels] * k + pair[0]


@compiles
@pytest.mark.parametrize("jit", [True, False])
def test_scratch(tmp_path: Path, jit: bool) -> None:
    scratch = {"sums": lambda x: (int(x.input_dims[0][1]),), "pair": (2,)}
    chai.custom("mine", scratch=scratch, args={"k": 3}, jit=jit)(with_scratch)
    net = one(tmp_path)
    for call in (1, 2):
        sums = 3 * DATA.astype(np.float64).sum((0, 2, 3), keepdims=True) + call
        assert np.allclose(net.forward(DATA)["y"], np.broadcast_to(sums, SHAPE), atol=1e-4)


def test_everything_follows_sizes_that_change_after_load(tmp_path: Path) -> None:
    @chai.custom("mine", scratch={"row": lambda x: (int(x.input_dims[0][3]),)}, args={"width": "I.X"}, jit=False)
    def mine(x: Any, row: Any, width: int) -> None:
        row[:] = range(width)
        x.top[0][...] = (x.bottom[0] * row).sum(3)

    mine.shape(lambda x: [tuple(x.input_dims[0][:3])])
    net = one(tmp_path, flagged(()))
    for shape in (SHAPE, (1, 3, 4, 9), SHAPE):
        data = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        top = net.forward(data)["y"]
        assert top.shape == net.shapes["y"] == shape[:3]
        assert np.allclose(top, sum(data[..., i] * i for i in range(shape[3])), atol=1e-4)


def test_blobs_are_not_copied_between_custom_layers(tmp_path: Path) -> None:
    seen: list[Any] = []
    custom = {"mine": lambda x: (seen.append(x), x.out_ptrs[0].fill(len(seen)))}
    network(tmp_path, f"a mine data -> a : {flagged()}\nb mine a -> y : {flagged()}", SHAPE, custom=custom).forward(
        DATA
    )
    assert np.shares_memory(seen[-2].top[0], seen[-1].bottom[0])


# -- several bottoms, several tops, CHaiDNN's numbering

THREE = "a Power data -> a : power_param { scale: 2 }\nb Pooling data -> b : pooling_param { global_pooling: true }\n"


def combine(x: Any) -> None:
    """First top: bottom 0 + bottom 1; second: minus that; bottom 2 has one number per channel."""
    ports = len(x.in_ptrs) // 3
    length = x.in_ptrs[0].size // x.in_ptrs[2 * ports].size
    for i in range(x.in_ptrs[0].size):
        value = x.in_ptrs[0][i] + x.in_ptrs[ports][i] + x.in_ptrs[2 * ports][i // length]
        x.out_ptrs[0][i] = value
        x.out_ptrs[1][i] = -value


@compiles
@pytest.mark.parametrize("device", ["float", "emulator"])
@pytest.mark.parametrize(("ports", "jit"), [(1, True), (2, True), (2, False)])
def test_several_bottoms_and_tops(tmp_path: Path, ports: int, jit: bool, device: str) -> None:
    chai.custom("mine", ports=ports, jit=jit)(combine)
    lines = f"{THREE}mine mine data a b -> y z : {flagged()}"
    outputs = network(tmp_path, lines, SHAPE, device=device).forward(DATA)
    wanted = DATA + 2 * DATA + DATA.max((2, 3), keepdims=True)
    assert set(outputs) == {"y", "z"}
    if device == "float":
        assert np.array_equal(outputs["y"], wanted)
    else:  # the pooling is in fixed point, everything else on the host
        assert np.abs(outputs["y"] - wanted).max() < np.abs(DATA).max() / 127
    assert np.array_equal(outputs["z"], -outputs["y"])


def test_tops_of_different_shapes_need_a_rule(tmp_path: Path) -> None:
    @chai.custom("mine", jit=False)
    def mine(x: Any) -> None:
        x.top[0][...] = x.bottom[0].sum((1, 2, 3))
        x.top[1][...] = x.bottom[0].max((2, 3))

    @mine.shape
    def _(x: Any) -> list[tuple[int, ...]]:
        n, c = x.input_dims[0][:2]
        return [(n,), (n, c)]

    net = network(tmp_path, "mine mine data -> sums most", SHAPE)  # needs no flag: no built-in is called so
    assert net.shapes["sums"] == (2,)
    outputs = net.forward(DATA[:1])
    assert np.allclose(outputs["sums"], DATA[:1].sum((1, 2, 3)), atol=1e-5)
    assert np.array_equal(outputs["most"], DATA[:1].max((2, 3)))


def test_strict_keeps_chaidnns_limits(tmp_path: Path) -> None:
    chai.custom("mine", jit=False)(nothing)
    two, inside = f"mine mine data -> y z : {flagged()}", f"mine mine data -> data : {flagged()}"
    with pytest.raises(chai.ShapeError, match=r"layer 'mine' \(mine\): EP075: 2 tops, CHaiDNN takes one"):
        network(tmp_path, two, SHAPE, strict=True)
    with pytest.raises(chai.ShapeError, match=r"layer 'mine' \(mine\): EP073: it works in place"):
        network(tmp_path, inside, SHAPE, strict=True)
    for lines in (two, inside):
        network(tmp_path, lines, SHAPE).forward(DATA)
    one(tmp_path, strict=True).forward(DATA)


# -- shapes


def test_top_dim_is_needed_without_a_rule(tmp_path: Path) -> None:
    chai.custom("mine", jit=False)(nothing)
    with pytest.raises(chai.ShapeError, match=r"layer 'mine' \(mine\): EP071: top_dim is missing") as caught:
        one(tmp_path, flagged(()))
    assert "or @f.shape" in caught.value.hint


def test_rule_and_top_dim_have_to_agree_but_for_the_batch(tmp_path: Path) -> None:
    custom = chai.custom("mine", jit=False)(nothing)
    custom.shape(lambda x: [tuple(x.input_dims[0])])
    assert one(tmp_path, flagged((9, 3, 5, 7))).shapes["y"] == SHAPE
    for dims in ((2, 3, 5, 8), (2, 105), (2, 3, 5, 7, 1)):
        with pytest.raises(
            chai.ShapeError, match=f"EP071: top_dim says {'x'.join(map(str, dims))}, its shape rule 2x3x5x7"
        ):
            one(tmp_path, flagged(dims))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda x: None, "its shape rule returned None, expected one shape per top"),
        (lambda x: (2, 3, 5, 7), r"its shape rule returned \(2, 3, 5, 7\), expected one shape per top"),
        (lambda x: ["wide"], r"its shape rule returned \['wide'\], expected one shape per top"),
        (lambda x: [(2, None)], r"its shape rule returned \[\(2, None\)\], expected one shape per top"),
        (lambda x: [(2, float("inf"))], r"its shape rule returned \[\(2, inf\)\], expected one shape per top"),
        (lambda x: [], "its shape rule returned 0 shapes for 1 top"),
        (lambda x: [SHAPE, SHAPE], "its shape rule returned 2 shapes for 1 top"),
        (lambda x: [(2, -3)], "top of shape 2x-3: a size is negative"),
        (lambda x: [(2**40, 2**40)], "top of shape .*blob_elements"),
    ],
)
def test_a_rule_that_returns_no_shapes(tmp_path: Path, rule: Any, message: str) -> None:
    chai.custom("mine", jit=False)(nothing).shape(rule)
    with pytest.raises(chai.ShapeError, match=rf"layer 'mine' \(mine\): {message}"):
        one(tmp_path, flagged(()))


def test_a_rule_that_raises(tmp_path: Path) -> None:
    custom = chai.custom("mine", jit=False)(nothing)

    @custom.shape
    def _(x: Any) -> Any:
        return [(2, x.float_args[0])]

    line = custom.shape_rule.__code__.co_firstlineno + 2
    with pytest.raises(chai.PluginError, match=rf"layer 'mine' .*{__file__}:{line}: IndexError"):
        one(tmp_path, flagged(()))


# -- setup


def test_setup_runs_once_per_layer_and_again_after_params_were_touched(tmp_path: Path) -> None:
    setups = []

    @chai.custom("mine", jit=False)
    def mine(x: Any) -> None:
        x.data["calls"] = x.data.get("calls", 0) + 1
        x.top[0][...] = x.data["calls"]

    @mine.setup
    def _(x: Any) -> None:
        setups.append(x.layername)
        x.data["calls"] = 0

    lines = f"one mine data -> a : {flagged()}\ntwo mine a -> y : {flagged()}"
    net = network(tmp_path, lines, SHAPE)
    assert setups == ["one", "two"]  # before the first image
    setups.clear()
    net = chai.Net(tmp_path / "net.prototxt", device="float")
    assert [net.forward(d)["y"][0, 0, 0, 0] for d in (DATA, DATA[:1], DATA)] == [1, 2, 3]  # each layer has its own
    assert setups == ["one", "two"]
    assert net.params == {}
    assert net.forward(DATA)["y"][0, 0, 0, 0] == 1
    assert setups == ["one", "two"] * 2


def weighted(x: Any) -> None:
    for i in range(x.out_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * x.custom_float_params[1][x.params_dims[1][0] - 1] + x.n_params


@compiles
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("device", ["float", "emulator"])
def test_setup_may_make_parameters_of_parameters(tmp_path: Path, jit: bool, device: str) -> None:
    from chai.parser.caffemodel import write_caffemodel

    custom = chai.custom("mine", jit=jit)(weighted)

    @custom.setup
    def _(x: Any) -> None:
        x.custom_float_params += (x.param(0).T.sum(1),)  # the columns' sums

    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_caffemodel(tmp_path / "w.caffemodel", "t", [("mine", "mine", [weights])])
    net = one(tmp_path, caffemodel=tmp_path / "w.caffemodel", device=device)
    assert np.array_equal(net.forward(DATA)["y"], DATA * np.float32(2 + 5) + 2)
    net.params["mine"][0][1, 2] = 8
    assert np.array_equal(net.forward(DATA)["y"], DATA * np.float32(2 + 8) + 2)


# -- ReLU

RELU = f"mine mine data -> y : {flagged()}\nrelu ReLU y -> y"


def shifted(x: Any) -> None:
    for i in range(x.in_ptrs[0].size):
        value = x.in_ptrs[0][i] - 0.25
        x.out_ptrs[0][i] = max(value, 0) if x.custom_reluflag else value


@compiles
@pytest.mark.parametrize("slope", [0.0, 0.125])
@pytest.mark.parametrize("fuse", [(), ("ReLU",)])
def test_a_relu_behind_it_is_its_own_or_the_hosts(tmp_path: Path, fuse: tuple[str, ...], slope: float) -> None:
    """On an overlay, where layers are fused; the result is what two layers give."""
    custom = chai.custom("mine", fuse=fuse)(shifted)
    flags = []
    custom.impl("numpy", jit=False, priority=20)(lambda x: (flags.append(x.custom_reluflag), shifted(x)))
    lines = f"{RELU} : relu_param {{ negative_slope: {slope} }}"
    fixed = network(tmp_path, lines, SHAPE, device="emulator", jit=False)
    top = fixed.forward(DATA)["y"]
    assert fixed.schedule.engines() == ["host:mine"]
    assert flags[-1] == (1 if fuse and not slope else 0)
    custom.implementations.pop()
    wanted = np.where(DATA < 0.25, np.float32(slope) * (DATA - np.float32(0.25)), DATA - np.float32(0.25))
    for device in ("emulator", "float"):  # compiled
        assert np.allclose(network(tmp_path, lines, SHAPE, device=device).forward(DATA)["y"], wanted, atol=1e-6)
    assert np.allclose(top, wanted, atol=1e-6)


# -- built-ins


def test_a_built_in_gives_way_to_the_flag_or_to_override(tmp_path: Path) -> None:
    chai.custom("AbsVal", override=False, jit=False)(lambda x: x.out_ptrs[0].fill(42))
    plain = "abs AbsVal data -> y"
    assert np.array_equal(network(tmp_path, plain, SHAPE).forward(DATA)["y"], np.abs(DATA))
    assert (network(tmp_path, f"{plain} : {flagged()}", SHAPE).forward(DATA)["y"] == 42).all()
    custom = chai.custom("AbsVal", override=True, jit=False)(lambda x: x.out_ptrs[0].fill(43))
    custom.shape(lambda x: [x.input_dims[0]])
    assert (network(tmp_path, plain, SHAPE).forward(DATA)["y"] == 43).all()


def test_a_built_in_type_without_override_is_refused() -> None:
    """Otherwise the built-in would run, and the function never, without a word."""
    with pytest.raises(
        chai.PluginError, match=r"test_decorator\.py:\d+: custom type 'Convolution': chai has"
    ) as caught:
        chai.custom("Convolution")(lambda x: None)
    assert "override=True takes all its layers, override=False those that are flagged" in caught.value.hint


def test_a_networks_own_function_of_a_built_in_type_runs(tmp_path: Path) -> None:
    def fill(x: Any) -> None:
        x.out_ptrs[0].fill(44)

    plain = "abs AbsVal data -> y"
    custom = plain_type("AbsVal", fill)
    custom.shape(lambda x: [x.input_dims[0]])
    assert (network(tmp_path, plain, SHAPE, custom={"AbsVal": custom}).forward(DATA)["y"] == 44).all()
    flagged_only = chai.custom("AbsVal", override=False, jit=False)(fill)
    exact = network(tmp_path, plain, SHAPE, custom={"AbsVal": flagged_only}).forward(DATA)["y"]
    assert np.array_equal(exact, np.abs(DATA))


# -- methods


class Custom:
    """As in CHaiDNN: the functions of custom layers are methods of one class."""

    def __init__(self) -> None:
        self.factor = np.float32(3)

    @chai.custom("method_one")
    def custom_first(self, x: Any) -> None:
        for i in range(x.in_ptrs[0].size):
            x.out_ptrs[0][i] = x.in_ptrs[0][i] + 1

    @chai.custom("method_two", jit=False, args={"k": 2})
    def custom_second(self, x: Any, k: int) -> None:
        x.top[0][...] = x.bottom[0] * self.factor * k

    @custom_second.shape
    def second_shape(self, x: Any) -> list[Any]:
        return [x.input_dims[0]]


@compiles
def test_methods_of_a_class(tmp_path: Path, registry: Any) -> None:
    registry.register(Custom.custom_first)
    registry.register(Custom.custom_second)
    net = network(tmp_path, f"a method_one data -> a : {flagged()}\nb method_two a -> y", SHAPE)
    assert frame(net, "a").compiled is not None
    assert np.array_equal(net.forward(DATA)["y"], (DATA + np.float32(1)) * 6)
    own = Custom()
    own.factor = np.float32(5)
    x = frame(net, "b").static
    layer_object = chai.xChangeLayer({**x, "bottom": (DATA,), "top": (np.zeros_like(DATA),)})
    own.custom_second(layer_object, 1)  # in its class it still is a method
    assert np.array_equal(layer_object.top[0], DATA * 5)


class Scaler:
    """Has the forms of method that a user may give as a function."""

    factor = np.float32(3)

    def __init__(self, factor: float) -> None:
        self.factor = np.float32(factor)

    def scale(self, x: Any) -> None:
        x.top[0][...] = self.factor * x.bottom[0]

    def other_name(this, x: Any) -> None:  # noqa: N805
        this.scale(x)

    @classmethod
    def of_the_class(cls, x: Any) -> None:
        x.top[0][...] = cls.factor * x.bottom[0]

    def with_argument(self, x: Any, k: float) -> None:
        x.top[0][...] = self.factor * x.bottom[0] * np.float32(k)

    def shape(self, x: Any) -> list[Any]:
        return [x.input_dims[0]]


@pytest.mark.parametrize(
    "custom",
    [
        lambda: {"mine": Scaler(3).scale},
        lambda: {"mine": Scaler(3).other_name},
        lambda: {"mine": Scaler(9).of_the_class},
        lambda: {"mine": chai.custom("scaled", jit=False, args={"k": 2.0})(Scaler(1.5).with_argument)},
        lambda: chai.custom("mine", jit=False)(Scaler(3).scale).with_shape(Scaler(1).shape),
    ],
)
def test_methods_of_an_object(tmp_path: Path, custom: Callable[[], Any]) -> None:
    """They have their object: x comes first."""
    assert np.array_equal(one(tmp_path, custom=custom()).forward(DATA)["y"], DATA * np.float32(3))


def test_a_method_by_its_name_and_one_that_would_be_compiled(tmp_path: Path) -> None:
    top = one(tmp_path, type="scale", custom=[Scaler(2).scale]).forward(DATA)["y"]
    assert np.array_equal(top, DATA * np.float32(2))
    with pytest.raises(chai.PluginError, match="a method of an object cannot be compiled"):
        chai.custom("mine")(Scaler(2).scale)


# -- refused where it stands


def wants(x: Any, other: int) -> None:
    """Asks for an argument."""


@pytest.mark.parametrize(
    ("options", "function", "message"),
    [
        ({}, wants, "ref asks for 'other', which is neither in args nor in scratch"),
        ({}, lambda: None, "ref takes no argument, it is given one xChangeLayer"),
        ({}, 7, "7 is not a function"),
        ({"args": {"other": 1}, "scratch": {"other": (1,)}}, wants, "other: in args and in scratch"),
        ({"layout": "NCWH"}, nothing, "layout 'NCWH'; expected one of float32, float16, int8 and NCHW or NHWC"),
        ({"dtype": "float64"}, nothing, "dtype 'float64'"),
        ({"dtype": "float16"}, nothing, "compiled code has no float16"),
        ({"dtype": "int8"}, nothing, "it has to take float32 or float16: inputs may come from the host"),
        ({"fuse": ("Sigmoid",)}, nothing, "fuse: 'Sigmoid' cannot be fused, only 'ReLU'"),
        ({"ports": 3}, nothing, "ports 3: expected 1, or 2"),
        ({"max_threads": 0}, nothing, "max_threads 0: expected at least 1"),
        ({"max_threads": "4"}, nothing, "max_threads '4': expected int or None"),
        ({"fuse": "ReLU"}, nothing, "fuse 'ReLU': expected tuple"),
        ({"fuse": None}, nothing, "fuse None: expected tuple"),
        ({"per_image": "no"}, nothing, "per_image 'no': expected bool"),
        ({"override": 0}, nothing, "override 0: expected bool or None"),
        ({"version": 2}, nothing, "version 2: expected str"),
        ({"scratch": ["a"]}, nothing, "scratch ['a']: expected dict"),
        ({"jit": "no"}, nothing, "implementation 'ref': jit 'no': expected bool"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], function: Any, message: str) -> None:
    with pytest.raises(chai.PluginError) as caught:
        chai.custom("mine", **options)(function)
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{__file__}:" if function != 7 else "7: custom type 'mine'")


@pytest.mark.parametrize("type", ["", None, nothing])
def test_a_type_is_a_text(type: Any) -> None:
    """Without parentheses the decorated function is in the place of the type, and nothing would be registered."""
    with pytest.raises(chai.PluginError, match=r"@custom needs the layer's type as text.*@chai\.custom\("):
        chai.custom(type)
    for form in ("compose", "cvlayer", "vitis"):
        with pytest.raises(chai.PluginError, match=rf"@custom\.{form} needs the layer's type as text"):
            getattr(chai.custom, form)(type)
    with pytest.raises(chai.PluginError, match="@shape needs the layer's type as text"):
        chai.shape(type)
    with pytest.raises(chai.PluginError, match=r"custom type 'mine': @impl needs a name as text.*@f\.impl\("):
        chai.custom("mine")(nothing).impl(type)


def test_names_of_implementations_are_their_own() -> None:
    custom = chai.custom("mine")(nothing)
    custom.impl("fast")(nothing)
    with pytest.raises(chai.PluginError, match="custom type 'mine' has two implementations called 'fast'"):
        custom.impl("fast")(nothing)
