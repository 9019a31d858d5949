"""Blobs whose first axis is not the batch, or not it alone: onnxruntime's numbers for every batch, whichever was read for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import chai
from chai.errors import ShapeError, UnsupportedNodes

from .common import model, node, numbers

BATCHES = (1, 2, 3, 4, 6)
MOST = 2**31 - 1
TENSORS = {
    "0": np.array([0]), "1": np.array([1]), "2": np.array([2]), "-1": np.array([-1]), "-2": np.array([-2]),
    "most": np.array([MOST]), "least": np.array([-MOST]), "first": np.array(0), "some": np.array([2, 0]),
    "table": np.array([[0, 1], [2, 1]]), "parts": np.array([1, 2]), "pair": np.array([2, 1, 1, 1, 1]),
    "three": np.array([3, 1, 1, 1]), "as it was": np.array([0, 0, -1]), "twice": np.array([2, 1, 1, 1], np.float32),
    "threes": numbers(3, 1, 1, 1), "two": numbers(2, 3, 5, 7), "heads": np.array([3, -1, 35]), "35": np.array([35]),
}  # fmt: skip


def mean(axis: int, *after: bytes) -> list[bytes]:
    return [node("ReduceMean", ["z"], ["m"], axes=[axis], keepdims=1), *after]


# nodes that read z, the images as the second axis: 3 x N x 5 x 7
FREE = {
    "mean over the first axis": [node("ReduceMean", ["z"], ["y"], axes=[0], keepdims=1)],
    "mean without it": [node("ReduceMean", ["z"], ["y"], axes=[3], keepdims=0)],
    "log of sums": [node("ReduceLogSumExp", ["z"], ["y"], axes=[0], keepdims=1)],
    "difference to the mean": mean(0, node("Sub", ["z", "m"], ["y"])),
    "difference to the mean of images": mean(1, node("Sub", ["z", "m"], ["y"])),
    "norm": [node("LpNormalization", ["z"], ["y"], axis=0)],
    "place of the maximum": [node("ArgMax", ["z"], ["i"], axis=3, keepdims=0), node("Cast", ["i"], ["y"], to=1)],
    "first": [node("Gather", ["z", "first"], ["y"], axis=0)],
    "some": [node("Gather", ["z", "some"], ["y"], axis=0)],
    "last": [node("Gather", ["z", "-1"], ["y"], axis=0)],
    "table": [node("Gather", ["z", "table"], ["y"], axis=0)],
    "table of rows": [node("Gather", ["z", "table"], ["y"], axis=2)],
    "slice from the end": [node("Slice", ["z", "-2", "most", "0"], ["y"])],
    "every second": [node("Slice", ["z", "0", "most", "0", "2"], ["y"])],
    "reversed": [node("Slice", ["z", "-1", "least", "0", "-1"], ["y"])],
    "first image": [node("Slice", ["z", "0", "1", "1"], ["y"])],
    "parts": [node("Split", ["z", "parts"], ["y", "rest"], axis=0)],
    "axis before": [node("Unsqueeze", ["z", "0"], ["y"])],
    "axis between": [node("Unsqueeze", ["z", "1"], ["y"])],
    "copies": [node("Unsqueeze", ["z", "0"], ["u"]), node("Expand", ["u", "pair"], ["y"])],
    "copies of a mean": mean(0, node("Expand", ["m", "three"], ["y"])),
    "larger": [node("Resize", ["z", "", "twice"], ["y"], mode="nearest")],
    "flat maps": [node("Reshape", ["z", "as it was"], ["y"])],
    "a constant": [node("Mul", ["z", "threes"], ["y"])],
    "heads": [node("Reshape", ["z", "heads"], ["y"])],
    "rows before opset 13": [node("Softmax", ["z"], ["y"], axis=2)],
    "heads by shape": [
        node("Shape", ["z"], ["s"]),
        node("Slice", ["s", "0", "2", "0"], ["both"]),
        node("Concat", ["both", "35"], ["target"], axis=0),
        node("Reshape", ["z", "target"], ["y"]),
    ],
    "more images": [node("Concat", ["x", "two"], ["y"], axis=0)],
    "the mean and its number": [  # which does not depend on the batch
        node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        node("Concat", ["m", "two"], ["c"], axis=0),
        node("Shape", ["c"], ["s"]),
        node("Gather", ["s", "first"], ["count"]),
        node("Cast", ["count"], ["number"], to=1),
        node("Div", ["c", "number"], ["y"]),
    ],
}
# those that are for one batch alone
COUNTED = {
    "last image": [node("Slice", ["z", "-1", "most", "1"], ["y"], "last")],
    "reversed images": [node("Slice", ["z", "-1", "least", "1", "-1"], ["y"], "last")],
    "every second image": [node("Slice", ["z", "0", "most", "1", "2"], ["y"], "last")],
    "last of more": [
        node("Concat", ["x", "two"], ["c"], axis=0),
        node("Slice", ["c", "-1", "most", "0"], ["y"], "last"),
    ],
}


def network(nodes: Sequence[bytes], opset: int = 13) -> bytes:
    turned = node("Transpose", ["x"], ["z"], perm=[1, 0, 2, 3])
    return model([turned, *nodes], {"x": ("batch", 3, 5, 7)}, ["y"], TENSORS, opset=opset)


@pytest.mark.parametrize("case", FREE)
def test_every_batch(case: str) -> None:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    options = ort.SessionOptions()
    options.log_severity_level = 3  # of constants that no node reads
    file = network(FREE[case], 12 if "opset" in case else 13)
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    images = {batch: numbers(batch, 3, 5, 7, seed=2) for batch in BATCHES}
    expected = {batch: session.run(None, {"x": x})[0] for batch, x in images.items()}
    for read in (1, 2, 3):
        with chai.Net(file, device="float", shapes={"x": images[read].shape}) as net:
            for batch, x in images.items():
                y = net.forward(x=x)["y"]
                assert y.shape == expected[batch].shape, (read, batch)
                np.testing.assert_allclose(y, expected[batch], rtol=1e-5, atol=1e-5, err_msg=f"{read}, {batch}")


# constant sizes of a file that leaves the batch open, for x of N x 6 x 5 x 7
OPEN = [
    [1, -1], [2, -1], [2, -1, 35], [1, -1, 7], [3, -1, 14], [2, 3, -1], [-1, 2, 105], [1, 2, -1], [6, -1, 1, 5],
]  # fmt: skip


@pytest.mark.parametrize("read", [1, 2, 3])
def test_constant_sizes_of_an_open_batch_are_those_of_every_batch(read: int) -> None:
    """-1 is what they leave, though one may be as large as the batch that the file is read for."""
    tops, targets = [f"y{i}" for i in range(len(OPEN))], {f"t{i}": np.array(sizes) for i, sizes in enumerate(OPEN)}
    nodes = [node("Reshape", ["x", target], [top]) for top, target in zip(tops, targets)]
    nodes += [node("Reshape", ["x", "six"], ["split"]), node("Transpose", ["split"], ["swapped"], perm=[0, 2, 1, 3, 4])]
    nodes += [node("Reshape", ["swapped", "pairs"], ["shuffled"])]  # no channel shuffle but for two images
    sizes = {"six": np.array([-1, 2, 3, 5, 7]), "pairs": np.array([2, -1, 5, 7])}
    file = model(nodes, {"x": ("batch", 6, 5, 7)}, [*tops, "shuffled"], targets | sizes)
    with chai.Net(file, device="float", shapes={"x": (read, 6, 5, 7)}) as net:
        for batch in BATCHES:
            x = numbers(batch, 6, 5, 7)
            y = net.forward(x=x)
            for top, target in zip(tops, OPEN):
                np.testing.assert_array_equal(y[top], x.reshape(target), err_msg=f"{target}, {batch}")
            shuffled = x.reshape(-1, 2, 3, 5, 7).transpose(0, 2, 1, 3, 4).reshape(2, -1, 5, 7)
            np.testing.assert_array_equal(y["shuffled"], shuffled, err_msg=str(batch))


# sizes of a file that states n images, after a transposition by these axes
STATED = {
    "row": ((0, 1, 2, 3), lambda n: [n, -1]),
    "maps": ((0, 1, 2, 3), lambda n: [n, 6, 35]),
    "maps of maps": ((0, 1, 2, 3), lambda n: [n, -1, 7]),
    "groups": ((0, 1, 2, 3), lambda n: [n * 3, 2, 35]),
    "groups, left": ((0, 1, 2, 3), lambda n: [-1, 2, 105]),
    "places first": ((2, 0, 1, 3), lambda n: [5, n, -1]),
    "places first, left": ((2, 0, 1, 3), lambda n: [-1, n, 42]),
    "channels first": ((1, 0, 2, 3), lambda n: [6, n, 5, 7]),
    "channels first, in groups": ((1, 0, 2, 3), lambda n: [2, 3, n, -1]),
    "channels first, images left": ((1, 0, 2, 3), lambda n: [2, 3, -1, 35]),
}


@pytest.mark.parametrize("case", STATED)
@pytest.mark.parametrize("file", [1, 2, 3])
def test_the_batch_of_a_file_that_states_one(file: int, case: str) -> None:
    """It is the constant size whose place is that of the images, whichever batch the file is read for."""
    axes, sizes = STATED[case]
    nodes = [node("Transpose", ["x"], ["z"], perm=[*axes]), node("Reshape", ["z", "sizes"], ["y"])]
    model_of_one = model(nodes, {"x": (file, 6, 5, 7)}, ["y"], {"sizes": np.array(sizes(file))})
    for read in (1, 2, 3, 4, 6):
        with chai.Net(model_of_one, device="float", shapes={"x": (read, 6, 5, 7)}) as net:
            for batch in (2, read):
                x = numbers(batch, 6, 5, 7)
                y = x.transpose(axes).reshape(sizes(batch))
                np.testing.assert_array_equal(net.forward(x=x)["y"], y, err_msg=f"{read}, {batch}")


# sizes that mix images: of more of them they may be others
MIXED = {
    1: [[105, -1], [6, -1, 7], [-1, 6, 35]],
    2: [[4, -1], [14, -1]],
}


@pytest.mark.parametrize("file", MIXED)
def test_sizes_that_mix_the_images_of_a_stated_batch_are_for_it_alone(file: int) -> None:
    for sizes in MIXED[file]:
        axes = (1, 0, 2, 3) if sizes[0] == -1 else (0, 1, 2, 3)
        nodes = [node("Transpose", ["x"], ["z"], perm=[*axes]), node("Reshape", ["z", "sizes"], ["y"], "last")]
        x = numbers(file, 6, 5, 7)
        model_of_some = model(nodes, {"x": x.shape}, ["y"], {"sizes": np.array(sizes)})
        with chai.Net(model_of_some, device="float") as net:
            np.testing.assert_array_equal(net.forward(x=x)["y"], x.transpose(axes).reshape(sizes))
            with pytest.raises(ShapeError, match="node 'last' has numbers for that batch"):
                net.forward(x=numbers(file + 1, 6, 5, 7))
        with pytest.raises(UnsupportedNodes, match=f"mix {file} image.*may be others for 4") as caught:
            chai.Net(model_of_some, device="float", shapes={"x": (4, 6, 5, 7)})
        assert f"read the network for {file}" in str(caught.value.hint)


@pytest.mark.parametrize("case", ["as it is", "after a transposition"])
def test_squeeze_without_axes(case: str) -> None:
    """The axis of images goes where there is one image, as all that are one long."""
    perm = [0, 1, 2, 3] if case == "as it is" else [1, 0, 2, 3]
    nodes = [node("Transpose", ["x"], ["z"], perm=perm), node("Squeeze", ["z"], ["y"])]
    file = model(nodes, {"x": ("batch", 3, 1, 7)}, ["y"])
    for read in (2, 3):
        with chai.Net(file, device="float", shapes={"x": (read, 3, 1, 7)}) as net:
            for batch in BATCHES:
                x = numbers(batch, 3, 1, 7)
                np.testing.assert_array_equal(net.forward(x=x)["y"], x.transpose(perm).squeeze())
    with chai.Net(file, device="float") as net:
        x = numbers(1, 3, 1, 7)
        np.testing.assert_array_equal(net.forward(x=x)["y"], x.squeeze())
        with pytest.raises(ShapeError, match="only axes of length 1 can go"):
            net.forward(x=numbers(2, 3, 1, 7))


@pytest.mark.parametrize("case", COUNTED)
def test_one_batch(case: str) -> None:
    for read, batch in ((1, 2), (2, 1), (2, 4), (3, 6), (4, 3)):
        with (
            chai.Net(network(COUNTED[case]), device="float", shapes={"x": (read, 3, 5, 7)}) as net,
            pytest.raises(ShapeError, match="node 'last' has numbers for that batch"),
        ):
            net.forward(x=numbers(batch, 3, 5, 7))
