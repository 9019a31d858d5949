"""The steps of Caffe's classification notebook, as a script of which only the import line is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chai.kernels.pixels import interpolate
from chai.util.paths import resource
from chai.zoo import networks
from tests.conftest import need_models

SCRIPT = """
import caffe
import numpy as np

caffe.set_mode_cpu()
net = caffe.Net(model_def, model_weights, caffe.TEST)

mu = np.load(mean_file).mean(1).mean(1)
transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
transformer.set_transpose("data", (2, 0, 1))
transformer.set_mean("data", mu)
transformer.set_raw_scale("data", raw_scale)
if len(mu) == 3:
    transformer.set_channel_swap("data", (2, 1, 0))

net.blobs["data"].reshape(batch, *net.blobs["data"].shape[1:])
image = caffe.io.load_image(image_file, color)
transformed_image = transformer.preprocess("data", image)
net.blobs["data"].data[...] = transformed_image
output = net.forward()
output_prob = output["prob"][0].flatten()

labels = np.loadtxt(labels_file, str, delimiter="\\t")
top_inds = output_prob.argsort()[::-1][:5]
top = list(zip(output_prob[top_inds], [labels[i] for i in top_inds]))

blob_shapes = [(name, blob.data.shape) for name, blob in net.blobs.items()]
param_shapes = [(name, param[0].data.shape, param[1].data.shape) for name, param in net.params.items()]


def tiles(data):
    # values from 0 to 1, one tile per filter, a rim of one bright pixel between them
    data = (data - data.min()) / (data.max() - data.min())
    side = int(np.ceil(np.sqrt(len(data))))
    rim = ((0, side ** 2 - len(data)), (0, 1), (0, 1)) + ((0, 0),) * (data.ndim - 3)
    data = np.pad(data, rim, mode="constant", constant_values=1)
    h, w = data.shape[1:3]
    rows = data.reshape((side, side, h, w) + data.shape[3:]).swapaxes(1, 2)
    return rows.reshape((side * h, side * w) + data.shape[3:])


first = list(net.params)[0]
filters = net.params[first][0].data
filters_picture = tiles(filters.transpose(0, 2, 3, 1))
feat = net.blobs[first].data[0, :9]
features_picture = tiles(feat)
features_again = transformer.deprocess("data", net.blobs["data"].data[0])
"""
PARAMETERS = {"squeezenet_v1.1": 26, "googlenet": 58}


def run(**names: Any) -> dict[str, Any]:
    """The script's names after it ran."""
    assert SCRIPT.count("import caffe\n") == 1
    exec(compile(SCRIPT.replace("import caffe\n", "import chai.pycaffe as caffe\n"), "notebook", "exec"), names)
    return names


@pytest.mark.parametrize("name", ["squeezenet_v1.1", "googlenet"])
def test_a_real_network(name: str, tmp_path: Path) -> None:
    models = need_models()
    folder = models / name
    meta = json.loads((folder / "meta.json").read_text())
    np.save(
        tmp_path / "mean.npy", np.broadcast_to(np.reshape(meta["preprocess"]["mean_bgr"], (3, 1, 1)), (3, 256, 256))
    )
    got = run(
        model_def=str(folder / "deploy.prototxt"),
        model_weights=str(folder / "weights.caffemodel"),
        mean_file=str(tmp_path / "mean.npy"),
        image_file=str(folder / "images" / "camel.jpg"),
        labels_file=str(models / "synset_words.txt"),
        raw_scale=255,
        batch=3,
        color=True,
    )
    net, case = got["net"], folder / "cases" / "camel"
    assert got["top"][0][1].startswith("n02437312 Arabian camel")
    assert got["top"][0][0] > 0.99
    size = net.blobs["data"].shape[2:]
    assert got["blob_shapes"][0] == ("data", (3, 3, *size))
    rows = [r for r in json.loads((case / "blobs.json").read_text()) if r["type"] != "Split"]
    assert dict(got["blob_shapes"]) == {r["top"]: (3, *r["shape"][1:]) for r in rows}
    assert len(got["param_shapes"]) == PARAMETERS[name]
    assert got["param_shapes"][0][1:] == (got["filters"].shape, (64,))
    kernel = got["filters"].shape[2] + 1
    assert got["filters_picture"].shape == (8 * kernel, 8 * kernel, 3)
    assert got["features_picture"].shape == tuple(3 * (s + 1) for s in got["feat"].shape[1:])
    photo = np.asarray(Image.open(folder / "images" / "camel.jpg").convert("RGB"), np.float32) / 255
    assert np.allclose(got["features_again"], interpolate(photo, size), atol=1e-5)
    # the numbers of real Caffe, from the input real Caffe was given
    net.blobs["data"].data[...] = np.load(case / "input.npy")
    wanted = np.load(case / "ref.npz")["prob"]
    assert np.allclose(net.forward()["prob"], np.repeat(wanted, 3, 0), rtol=1e-4, atol=1e-6)
    kept = np.load(case / "intermediate.npz")
    last = {key.rpartition("|")[2]: kept[key] for key in kept.files}  # of layers in place the last one's
    assert len(last) >= 8
    for blob, value in last.items():
        assert np.allclose(net.blobs[blob].data[1:2], value, rtol=1e-4, atol=2e-5 * np.abs(value).max()), blob


def test_the_shipped_digits(tmp_path: Path) -> None:
    np.save(tmp_path / "mean.npy", np.zeros((1, 8, 8)))
    (tmp_path / "labels.txt").write_text("".join(f"digit {i}\n" for i in range(10)))
    model = networks.prototxt("digits")
    assert model is not None
    files = sorted(resource("prototxt", "digits_images").glob("*.png"))[:12]
    for file in files:
        got = run(
            model_def=str(model),
            model_weights=str(model.with_suffix(".caffemodel")),
            mean_file=str(tmp_path / "mean.npy"),
            image_file=str(file),
            labels_file=str(tmp_path / "labels.txt"),
            raw_scale=1,
            batch=2,
            color=False,
        )
        assert got["top"][0][1] == f"digit {file.stem[-1]}"
    assert got["blob_shapes"][1] == ("conv1/3x3", (2, 16, 8, 8))
    assert got["param_shapes"][-1] == ("classifier", (10, 128), (10,))
    assert got["filters_picture"].shape == (16, 16, 1)
    assert np.array_equal(got["output"]["prob"][0], got["output"]["prob"][1])
