"""Parameters in HDF5 files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.env import env
from chai.limits import limits

pytestmark = pytest.mark.extras
NET = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } } }
layer { name: "block/conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc"
  inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
"""

pytestmark = pytest.mark.extras


@pytest.fixture
def h5py() -> Any:
    return pytest.importorskip("h5py", reason='HDF5 files need h5py (pip install "chai-fpga[hdf5]")')


@pytest.fixture
def net(tmp_path: Path) -> caffe.Net:
    (tmp_path / "net.prototxt").write_text(NET)
    return caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)


def randomise(net: caffe.Net) -> None:
    draw = np.random.default_rng(0)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = draw.standard_normal(blob.shape)


def test_what_is_written_is_read(h5py: Any, net: caffe.Net, tmp_path: Path) -> None:
    randomise(net)
    path = tmp_path / "w.h5"
    net.save_hdf5(str(path))
    with h5py.File(path, "r") as file:  # as Caffe lays it out
        assert sorted(file["data/block/conv"]) == ["0", "1"]
        assert file["data/fc/0"].dtype == np.float32 and file["data/fc/0"].shape == (6, 60)
        assert np.array_equal(file["data/fc/1"][...], net.params["fc"][1].data)
    image = np.random.default_rng(1).standard_normal((2, 3, 5, 7))
    expected = net.forward(data=image)["fc"].copy()
    for other in (
        caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, weights=str(path)),
        caffe.Net(str(tmp_path / "net.prototxt"), str(path), caffe.TEST),
    ):
        assert np.array_equal(other.forward(data=image)["fc"], expected)
    fresh = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    fresh.copy_from(str(path))
    assert np.array_equal(fresh.forward(data=image)["fc"], expected)


def test_layers_that_one_side_lacks_stay(h5py: Any, net: caffe.Net, tmp_path: Path) -> None:
    before = net.params["fc"][0].data.copy()
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["data/block/conv/0"] = np.ones((4, 3, 3, 3), np.float64)
        file["data/block/conv/1"] = np.arange(4)
        file["data/unknown/0"] = np.ones(3)
    net.load_hdf5(tmp_path / "w.h5")
    assert (net.params["block/conv"][0].data == 1).all()
    assert net.params["block/conv"][1].data.tolist() == [0, 1, 2, 3]
    assert np.array_equal(net.params["fc"][0].data, before)


def test_files_that_are_refused(h5py: Any, net: caffe.Net, tmp_path: Path) -> None:
    path = tmp_path / "w.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(chai.ParseError, match=r"w\.h5: expected an HDF5 file"):
        net.load_hdf5(path)
    cases: dict[str, Any] = {
        "expected numbers": np.array(["a"], "S1"),
        r"its parameters are \['6x61'\] in .*w\.h5, expected \['6x60', '6'\]": np.ones((6, 61)),
    }
    for expected, values in cases.items():
        with h5py.File(path, "w") as file:
            file["data/fc/0"] = values
        with pytest.raises(chai.ChaiError, match=expected) as caught:
            net.load_hdf5(path)
        assert caught.value.layer == "fc"
    with pytest.raises(FileNotFoundError):
        net.load_hdf5(tmp_path / "absent.h5")


def test_sizes_are_bounded_before_they_are_read(h5py: Any, net: caffe.Net, tmp_path: Path) -> None:
    """A compressed data set of 8 GB in a file of a few kilobytes."""
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file.create_dataset("data/fc/0", shape=(1 << 31,), dtype="f4", chunks=(1 << 20,), compression="gzip")
    with pytest.raises(chai.ParseError, match="layer 'fc', blob 0 of 2147483648 is too large"):
        net.load_hdf5(tmp_path / "w.h5")


def test_the_sum_of_sizes_is_bounded(
    h5py: Any, net: caffe.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One data set of a small file under many names."""
    monkeypatch.setenv("CHAI_LIMITS", "weight_bytes=10000")
    env.cache_clear()
    limits.cache_clear()
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["data/block/conv/0"] = np.ones(2000, np.float32)
        file["data/fc/0"] = file["data/block/conv/0"]
    with pytest.raises(chai.ParseError, match="layer 'fc', blob 0 of 2000 is too large"):
        net.load_hdf5(tmp_path / "w.h5")
    with h5py.File(tmp_path / "w.h5", "a") as file:
        del file["data/fc/0"]
        file["data/block/conv/1"] = file["data/block/conv/0"]
    with pytest.raises(chai.ParseError, match="layer 'block/conv', blob 1 of 2000 is too large"):
        net.load_hdf5(tmp_path / "w.h5")


def test_no_file_opens_another_one(h5py: Any, net: caffe.Net, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data/fc/0"] = np.full((6, 60), 7.0)
        file["x"] = np.full((6, 60), 7.0)
    raw = tmp_path / "raw.bin"
    raw.write_bytes(np.full((6, 60), 7, "<f4").tobytes())
    before = net.params["fc"][0].data.copy()
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["data/fc"] = h5py.ExternalLink("secret.h5", "/data/fc")
    net.load_hdf5(tmp_path / "w.h5")
    assert np.array_equal(net.params["fc"][0].data, before)
    for external in (True, False):
        with h5py.File(tmp_path / "w.h5", "w") as file:
            if external:
                file.create_dataset("data/fc/0", shape=(6, 60), dtype="f4", external=[(str(raw), 0, 1440)])
            else:
                layout = h5py.VirtualLayout((6, 60), "f4")
                layout[...] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "x", (6, 60))
                file.create_virtual_dataset("data/fc/0", layout)
        with pytest.raises(chai.ParseError, match="its numbers are in another file"):
            net.load_hdf5(tmp_path / "w.h5")


def test_gradients_are_not_written(net: caffe.Net, tmp_path: Path) -> None:
    with pytest.raises(chai.UsageError, match="no gradients"):
        net.save_hdf5(tmp_path / "w.h5", write_diff=True)


def test_without_h5py_it_says_what_to_install(net: caffe.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    for use in (net.save_hdf5, net.load_hdf5):
        with pytest.raises(chai.UsageError, match="HDF5 files need h5py") as caught:
            use(tmp_path / "w.h5")
        assert "chai-fpga[hdf5]" in str(caught.value.hint)
