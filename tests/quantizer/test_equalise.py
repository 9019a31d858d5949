"""Equalisation against loops; what it must not touch."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chai.passes.rewrite import fuse_relu
from chai.quantizer.equalise import LEAST, MOST, apply, factors
from chai.quantizer.observe import observe
from chai.quantizer.walk import in_float, shapes_of
from tests.passes.common import CONV, DEEP, MAX, network
from tests.quantizer.test_writeback import SHAPE, batches

LINES = f"""
    a Convolution data -> a : {DEEP}
    ra ReLU a -> a
    pa Pooling a -> pa : {MAX}
    b Convolution data -> b : {DEEP}
    pb Pooling b -> pb : {MAX}
    cat Concat pa pb -> cat
    c Convolution cat -> c : convolution_param {{ num_output: 6 kernel_size: 3 group: 2 }}
    d Convolution data -> d : {CONV}
    lrn LRN d -> l
    e Convolution l -> e : {CONV}
    ip InnerProduct c -> ip : inner_product_param {{ num_output: 5 }}
    """


def test_the_network_computes_the_same_and_its_blobs_are_divided(tmp_path: Path) -> None:
    graph = fuse_relu(network(tmp_path, LINES, SHAPE).graph)
    feeds = {"data": batches()[0]}
    seen, shapes = observe(graph, [feeds]), shapes_of(graph, feeds)
    r = factors(graph, seen.largest, shapes, 0.5, {"a", "b", "c", "d", "e"})
    assert r.keys() == {"a@ra", "pa", "b", "pb", "cat"}  # c is read in float, d by an LRN, e is an output
    np.testing.assert_array_equal(r["cat"], np.concatenate([r["pa"], r["pb"]]))
    scaled = replace(graph, layers=[copy(layer) for layer in graph.layers])
    apply(scaled, r)
    before = {b: v for layer, _, tops in in_float(graph, feeds) for b, v in zip(layer.tops, tops)}
    after = {b: v for layer, _, tops in in_float(scaled, feeds) for b, v in zip(layer.tops, tops)}
    for blob, value in before.items():
        wanted = value / r[blob].reshape(-1, 1, 1) if blob in r else value
        np.testing.assert_allclose(after[blob], wanted, rtol=2e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_the_factor_of_each_channel(tmp_path: Path, share: float) -> None:
    """The formula again, channel by channel."""
    lines = f"a Convolution data -> a : {CONV}\nb Convolution a -> b : {CONV}\nc Convolution a -> c : {DEEP}"
    graph = network(tmp_path, lines, SHAPE).graph
    feeds = {"data": batches()[0]}
    seen, shapes = observe(graph, [feeds]), shapes_of(graph, feeds)
    channel_factors = factors(graph, seen.largest, shapes, share, {"a", "b", "c"})["a"]
    raw, ranges = [], []
    for channel in range(4):
        range_ = float(seen.largest["a"][channel])
        column = 0.0
        for name in ("b", "c"):
            for row in graph.layer(name).blobs[0]:
                column = max(column, float(np.abs(row[channel]).max() / np.abs(row).max()))
        raw.append(range_**share / column ** (1 - share))
        ranges.append(range_)
    middle = np.exp(np.mean(np.log(raw)))
    wanted = [min(max(v / middle, LEAST), MOST) * np.exp(np.mean(np.log(ranges))) for v in raw]
    np.testing.assert_allclose(channel_factors, wanted, rtol=1e-6)


def test_dead_channels_get_a_factor_too(tmp_path: Path) -> None:
    net = network(tmp_path, f"a Convolution data -> a : {CONV}\nb Convolution a -> b : {CONV}", SHAPE)
    weights, bias = net.graph.layer("a").blobs
    weights[1] = bias[1] = 0
    net.graph.layer("b").blobs[0][:, 2] = 0  # nobody looks at this one
    feeds = {"data": batches()[0]}
    seen, shapes = observe(net.graph, [feeds]), shapes_of(net.graph, feeds)
    channel_factors = factors(net.graph, seen.largest, shapes, 0.5, {"a", "b"})["a"]
    assert np.isfinite(channel_factors).all() and (channel_factors > 0).all()
    assert channel_factors.max() / channel_factors.min() <= MOST / LEAST
