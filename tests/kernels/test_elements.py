"""Layers of single numbers by every variant of the kernels in C: every number is that of the layer's own forward in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.graph import Layer
from chai.kernels.native import Link, chain as chains
from chai.kernels.native.build import machine
from chai.kernels.native.chain import NativeChain
from chai.kernels.native.library import variant as find
from chai.layers.batch_norm import BatchNorm
from chai.layers.eltwise import Eltwise
from chai.layers.power import Power
from chai.layers.prelu import PReLU
from chai.layers.relu import ReLU
from chai.layers.scale import Bias, Scale
from tests.conftest import examples

from .common import VARIANTS, numbers, used

EXAMPLES = settings(max_examples=examples(40))
Array = np.ndarray
SHAPES = st.one_of(
    st.tuples(st.integers(1, 3), st.integers(1, 40)),
    st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 5, 17]), st.integers(1, 9), st.sampled_from([1, 7, 16, 37])),
    st.tuples(st.just(1), st.sampled_from([7, 9]), st.just(130), st.just(131)),  # several pieces of work
)
COEFFICIENTS = st.sampled_from([(), (1.0, -1.0), (0.3, 2.5), (1e38, 0.0)])
LAYERS = st.one_of(
    st.builds(lambda coeff: Eltwise("e", ("x", "z"), ("y",), Eltwise.Params("SUM", coeff)), COEFFICIENTS),
    st.sampled_from(["PROD", "MAX"]).map(lambda kind: Eltwise("e", ("x", "z"), ("y",), Eltwise.Params(kind))),
    st.builds(lambda eps: BatchNorm("b", ("x",), ("y",), BatchNorm.Params(eps=eps)), st.sampled_from([1e-5, 0.3, 0])),
    st.builds(
        lambda axis, axes, bias: Scale("s", ("x",), ("y",), Scale.Params(axis, axes, bias_term=bias)),
        *(st.sampled_from([0, 1, -1]), st.sampled_from([0, 1, -1]), st.booleans()),
    ),
    st.builds(
        lambda axis, bias: Scale("s", ("x", "z"), ("y",), Scale.Params(axis, bias_term=bias)),
        *(st.sampled_from([0, 1]), st.booleans()),
    ),
    st.builds(lambda axis: Bias("s", ("x",), ("y",), Bias.Params(axis)), st.sampled_from([0, 1, -1])),
    st.builds(lambda scale: Power("p", ("x",), ("y",), Power.Params(1, scale, 0.7)), st.sampled_from([1, -0.3])),
    st.sampled_from([0, 0.1, -2]).map(lambda slope: ReLU("r", ("x",), ("y",), ReLU.Params(slope))),
    st.booleans().map(lambda shared: PReLU("p", ("x",), ("y",), PReLU.Params(channel_shared=shared))),
)


def computed(variant: str, layer: Layer, bottoms: tuple[Array, ...], rectified: bool) -> Array:
    """Return the top as C computes it."""
    with used(variant):
        native = layer.native(tuple(x.shape for x in bottoms), rectified)
        library = find(variant)
        assert native is not None and library is not None
        shapes = {"y": bottoms[0].shape, **{name: x.shape for name, x in zip(layer.bottoms, bottoms)}}
        chain = NativeChain(library, [Link(native, layer.bottoms, layer.tops)], shapes, {"y"})
        (top,), _ = chain.run(dict(zip(layer.bottoms, bottoms)), chain.memory())
        return top


@pytest.mark.skipif(machine() == "armv7l", reason="there numpy's own division and square root are approximate")
@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    layer=LAYERS,
    shape=SHAPES,
    rectified=st.booleans(),
    special=st.sampled_from([0.0, -0.0, np.nan, np.inf, -np.inf]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_number_is_numpys(
    variant: str, layer: Layer, shape: tuple[int, ...], rectified: bool, special: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    bottoms = [numbers(rng, *shape)]
    bottoms[0].reshape(-1)[seed % 3 :: 5] = special
    if len(layer.bottoms) == 2:  # of a Scale: one number for each image, or for each channel
        axis = getattr(layer.params, "axis", None)
        bottoms.append(numbers(rng, *(shape if axis is None else shape[axis : axis + 1])))
        bottoms[1].reshape(-1)[::7] = special
    layer.blobs = [numbers(rng, *each) for each in layer.weight_shapes(*(x.shape for x in bottoms))]
    if isinstance(layer, BatchNorm):
        layer.blobs[2][0] = seed % 3  # 0: no statistics
    with np.errstate(all="ignore"):
        (wanted,) = layer.rectified(*bottoms) if rectified and layer.rectifies else layer.forward(*bottoms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "SHARED", 0)
        patch.setattr(chains, "threads", lambda: 1 + seed % 3)
        y = computed(variant, layer, tuple(bottoms), rectified)
    assert np.array_equal(y, wanted, equal_nan=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_image_has_the_bits_that_it_has_in_a_batch(variant: str) -> None:
    rng = np.random.default_rng(0)
    x, z = numbers(rng, 3, 5, 7, 11), numbers(rng, 3, 5, 7, 11)
    layer = Eltwise("e", ("x", "z"), ("y",), Eltwise.Params("SUM", (0.3, 0.7)))
    whole = computed(variant, layer, (x, z), True)
    assert np.array_equal(computed(variant, layer, (x[1:2], z[1:2]), True), whole[1:2])


@pytest.mark.parametrize(
    ("layer", "bottoms"),
    [
        (Eltwise("e", ("a", "b", "c"), ("y",)), ((2, 3, 5, 7),) * 3),
        (Bias("b", ("a", "b"), ("y",)), ((2, 3, 5, 7), (3,))),
        (Scale("s", ("a", "b"), ("y",)), ((2, 3), ())),
        (Power("p", ("a",), ("y",), Power.Params(power=2)), ((2, 3),)),
        (BatchNorm("n", ("a",), ("y",), BatchNorm.Params(use_global_stats=False)), ((2, 3, 5, 7),)),
        (BatchNorm("n", ("a",), ("y",), BatchNorm.Params(add_eps_before_sqrt=False)), ((2, 3, 5, 7),)),
        (ReLU("r", ("a",), ("y",), ReLU.Params(relu6=True)), ((2, 3),)),
        (ReLU("r", ("a",), ("y",)), ((2, 0, 5, 7),)),
    ],
)
def test_what_numpy_computes(layer: Layer, bottoms: tuple[tuple[int, ...], ...]) -> None:
    layer.blobs = [np.ones(shape, np.float32) for shape in layer.weight_shapes(*bottoms)]
    assert layer.native(bottoms, False) is None
