"""What a Graph says of its layers and blobs, by hand."""

from __future__ import annotations

import pytest

from chai.graph import Composed, Graph, Layer
from chai.layers.convolution import Convolution
from chai.layers.elementwise import AbsVal
from chai.layers.eltwise import Eltwise
from chai.layers.relu import ReLU


def network() -> Graph:
    """Convolution, a ReLU in place, |x| of it, and the sum of both."""
    layers: list[Layer] = [
        Convolution("conv", ("data",), ("c",)),
        ReLU("relu", ("c",), ("c@relu",)),
        AbsVal("abs", ("c@relu",), ("a",)),
        Eltwise("sum", ("c@relu", "a"), ("s",)),
    ]
    latest = {"data": "data", "c": "c@relu", "a": "a", "s": "s"}
    return Graph("n", layers, {"data": (2, 3, 5, 7)}, ["s", "c"], latest)


def test_the_last_reader_of_each_blob() -> None:
    """A blob that nothing reads ends with its writer."""
    assert network().last_readers == [["data"], ["c"], [], ["c@relu", "a", "s"]]


def test_a_relu_is_computed_with_the_layer_before_it_unless_something_else_reads_that() -> None:
    graph = network()
    assert graph.rectified == {0}
    graph.layers[2].bottoms = ("c",)
    assert Graph("n", graph.layers, {}, [], graph.latest).rectified == frozenset()


def test_outputs_and_names() -> None:
    graph = network()
    assert graph.output_blobs == ["s", "c@relu"]
    assert [graph.caffe_name(blob) for blob in ("data", "c", "c@relu", "s")] == ["data", "c", "c", "s"]


def test_layers_by_name() -> None:
    graph = network()
    assert graph.layer("abs") is graph.layers[2]
    with pytest.raises(KeyError):
        graph.layer("c")


def test_the_ends_of_a_composed_layer_are_those_of_its_parts() -> None:
    graph = network()
    graph.composed["block"] = Composed("Block", ("relu", "abs", "sum"), bottoms=("c", "unused"), tops=("s",))
    assert [layer.name for layer in graph.members("block")] == ["relu", "abs", "sum"]
    assert graph.ends("block") == (["c", None], ["s"])
    assert graph.ends("conv") == (["data"], ["c"])
    assert graph.members("other") == []
