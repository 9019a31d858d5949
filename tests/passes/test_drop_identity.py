"""drop_identity: Dropout and Split are removed without any visible effect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai.passes.rewrite import drop_identity, rewrite

from .common import CONV, facts, make, network, origins, same, types


@pytest.mark.parametrize("top", ["c", "d"], ids=["in place", "distinct"])
def test_a_dropout_in_a_chain(tmp_path: Path, top: str) -> None:
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV}
        drop Dropout c -> {top}
        abs AbsVal {top} -> y
        """,
    )
    known = facts(graph)
    after = drop_identity(graph)
    assert facts(graph) == known
    assert types(after) == ["Convolution", "AbsVal"]
    assert origins(after) == [("conv",), ("abs",)]
    assert after.layer("abs").bottoms == ("c",)
    assert after.latest[top] == "c"
    same(graph, after)


def test_a_dropout_that_scales_stays(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV}
        drop Dropout c -> c : dropout_param {{ dropout_ratio: 0.3 scale_train: false }}
        abs AbsVal c -> y
        """,
    )
    after = drop_identity(graph)
    assert types(after) == ["Convolution", "Dropout", "AbsVal"]
    same(graph, after)


def test_dropouts_and_splits_in_a_row(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV}
        drop Dropout c -> c
        split Split c -> a b
        again Dropout a -> d
        abs AbsVal d -> y
        tanh TanH b -> z
        """,
    )
    after = drop_identity(graph)
    assert types(after) == ["Convolution", "AbsVal", "TanH"]
    assert after.layer("abs").bottoms == after.layer("tanh").bottoms == ("c",)
    assert {after.latest[name] for name in "cabd"} == {"c"}
    same(graph, after)


def test_an_output_behind_a_dropout_is_the_blob_before_it(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV}
        drop Dropout c -> d
        """,
    )
    after = drop_identity(graph)
    assert (types(after), after.outputs, after.output_blobs) == (["Convolution"], ["d"], ["c"])
    same(graph, after)


def test_both_outputs_of_a_split_come_out(tmp_path: Path) -> None:
    lines = f"""
        conv Convolution data -> c : {CONV}
        split Split c -> a b
        """
    graph = make(tmp_path, lines)
    same(graph, drop_identity(graph))
    net = network(tmp_path, lines, device="emulator")
    outputs = net.forward(np.ones((2, 3, 5, 7)))
    assert list(outputs) == ["a", "b"]
    assert np.array_equal(outputs["a"], outputs["b"])


def test_an_input_that_is_an_output_keeps_its_layer(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        drop Dropout data -> d
        conv Convolution data -> c : {CONV}
        """,
    )
    after = drop_identity(graph)
    assert types(after) == ["Dropout", "Convolution"]
    assert set(after.outputs) == {"d", "c"}
    same(graph, after)


def test_a_dropped_input_leaves_the_input(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        drop Dropout data -> data
        conv Convolution data -> c : {CONV}
        """,
    )
    after = drop_identity(graph)
    assert types(after) == ["Convolution"]
    assert after.layer("conv").bottoms == ("data",)
    same(graph, after)


def test_a_graph_without_the_pattern(tmp_path: Path) -> None:
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}\nrelu ReLU c -> c\nabs AbsVal c -> y")
    assert facts(drop_identity(graph)) == facts(graph)


@pytest.mark.parametrize("keep", ["c", "d"])
def test_a_kept_blob_stops_no_pass(tmp_path: Path, keep: str) -> None:
    """The convolution's blob is the Dropout's too; both are folded away, and computed aside where they are kept."""
    lines = f"""
        conv Convolution data -> c : {CONV}
        drop Dropout c -> d
        relu ReLU d -> y
        """
    after = rewrite(make(tmp_path, lines))
    assert origins(after) == [("conv", "relu")]
    assert (after.latest["c"], after.latest["d"], after.folded) == ("c", "c", {"c": "conv"})
    net = network(tmp_path, lines, device="emulator", keep=[keep])
    net.forward(np.ones((2, 3, 5, 7)))
    assert set(net.blobs) == {keep, "y"}
    assert net.blobs[keep].min() < 0
