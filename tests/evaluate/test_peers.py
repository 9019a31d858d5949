"""Networks as Caffe's files for other engines, which compute the same numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import UsageError
from chai.evaluate.bench import start
from chai.evaluate.bench.caffe import caffe, replaced
from chai.evaluate.bench.engines import OPENCV, PeerEngine, Subject, opened, sets, unlike
from chai.parser.caffemodel import write_caffemodel
from chai.util.paths import resource
from tests.passes.common import network, prototxt

SHAPE = (2, 3, 13, 17)
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def test_the_gemm_of_digits_is_a_layer_of_caffe_for_peers(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason='pip install "chai-fpga[bench]"')
    net = chai.Net("digits", device="float", batch=3)
    x = np.random.default_rng(0).standard_normal(net.shapes["data"]).astype(np.float32)
    wanted = net.forward(x)["prob"]
    files = caffe(net.graph, tmp_path)
    assert replaced(net.graph, chai.Net(*files, device="float").graph) == ["classifier"]
    peer = cv2.dnn.readNetFromCaffe(*map(str, files))
    peer.setInput(x, "data")
    assert np.abs(peer.forward("prob") - wanted).max() < 1e-5


def test_custom_layers_that_have_a_twin_in_caffe(tmp_path: Path) -> None:
    """LeakyReLU and LRN with arguments of their own, a gemm without a bias; a layer of another's code stays."""
    lines = """
a LeakyReLU data -> a : user_defined_layer: true xcustom_param { float_args: 0.25 }
b LRN a -> b : user_defined_layer: true lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 k: 2 }
c gemm b -> c : user_defined_layer: true xcustom_param { float_args: 7 }
d Twice c -> d : user_defined_layer: true xcustom_param { top_dim: 1 top_dim: 7 }
"""
    own = tmp_path / "twice.py"
    own.write_text("import chai\n@chai.custom('Twice', jit=False)\ndef twice(x): x.out_ptrs[0][:] = 2 * x.in_ptrs[0]\n")
    folders = [resource("custom"), own]
    (tmp_path / "net.prototxt").write_text(prototxt(lines, SHAPE))
    weights = np.random.default_rng(1).standard_normal((1, 1, 7, 3 * 13 * 17)).astype(np.float32)
    write_caffemodel(tmp_path / "net.caffemodel", "net", [("c", "gemm", [weights])])
    net = chai.Net(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", device="float", custom=folders)
    wanted = net.forward(X)["d"]
    (tmp_path / "peers").mkdir()
    other = chai.Net(*caffe(net.graph, tmp_path / "peers"), device="float", custom=folders)
    assert [layer.type for layer in other.graph.layers if not layer.source] == ["ReLU", "LRN", "InnerProduct", "Twice"]
    assert replaced(net.graph, other.graph) == ["a", "b", "c"]
    assert np.abs(other.forward(X)["d"] - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_code_in_a_folder_with_a_similar_name_is_not_chais_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "custom2").mkdir()
    code = (
        "import chai\n@chai.custom('LRN', jit=False, override=False)\ndef lrn(x): x.out_ptrs[0][:] = 2 * x.in_ptrs[0]\n"
    )
    (tmp_path / "custom2" / "lrn.py").write_text(code)
    line = "a LRN data -> a : user_defined_layer: true xcustom_param { top_dim: 1 top_dim: 3 top_dim: 13 top_dim: 17 }"
    (tmp_path / "net.prototxt").write_text(prototxt(line, SHAPE))
    net = chai.Net(tmp_path / "net.prototxt", device="float", custom=tmp_path / "custom2")
    monkeypatch.setattr("chai.evaluate.bench.caffe.resource", lambda name: tmp_path / name)
    (tmp_path / "peers").mkdir()
    assert "xcustom_param" in caffe(net.graph, tmp_path / "peers")[0].read_text()


def test_sets_of_instructions_are_found_in_names_of_kernels() -> None:
    kernels = ["brgconv_avx512_amx_I8", "jit_avx512_f32", "unknown_f32", "AVX512-SKX", "jit_uni_I8"]
    assert sets(kernels) == ["amx", "avx512"]
    assert sets(["avx512vnni"]) == ["vnni", "avx512"]
    assert sets(["avxvnni"]) == ["vnni"]
    assert sets(["brgconv_avx512_bf16"]) == ["avx512", "bf16"]
    assert sets(["numpy"]) == []


@pytest.mark.parametrize(
    ("chai", "peer", "more"),
    [
        (["vnni", "avx512"], ["amx", "avx512"], "amx"),
        (["amx"], ["amx", "vnni", "avx512", "avx2"], ""),
        (["vnni", "avx512"], ["avx512", "bf16"], "bf16"),
        (["avx2"], ["vnni", "avx512"], "vnni, avx512"),
        ([], ["avx2"], "avx2"),
        (["vnni"], [], ""),
    ],
)
def test_what_a_peer_uses_and_chai_does_not_is_said(chai: list[str], peer: list[str], more: str) -> None:
    kernels = ", ".join(chai) or "numpy"
    wanted = [f"other uses {more}, which chai's kernels ({kernels}) do not"] if more else []
    assert [*unlike({"chai": chai, "other": peer})] == wanted


def test_a_peer_that_is_missing_or_fails_is_named(tmp_path: Path) -> None:
    def engine(error: Exception, extra: str) -> PeerEngine:
        def open(*_: object) -> Any:
            raise error

        return PeerEngine("none", extra, lambda *_: (), open)

    engines = {
        "away": engine(ImportError(), "peers"),
        "refuses": engine(UsageError("no", hint="yes"), "bench"),
        "fails": engine(ValueError("first line\nlast line"), "bench"),
    }
    subject = Subject(network(tmp_path, "a ReLU data -> a", SHAPE).graph, ("", ""), {"data": X}, 1)
    assert [(peer.name, peer.run) for peer in opened(engines, engines, subject, tmp_path)] == [
        ("away", 'it is not installed (pip install "chai-fpga[peers]")'),
        ("refuses", "no (yes)"),
        ("fails", "it cannot run this network (last line)"),
    ]


def test_opencv_reads_the_files_in_this_process_and_alone(tmp_path: Path) -> None:
    """What opens a network here is what a process of its own runs: the same text."""
    pytest.importorskip("cv2", reason='pip install "chai-fpga[bench]"')
    net = network(tmp_path, "a ReLU data -> a", SHAPE)
    files = caffe(net.graph, tmp_path)
    (peer,) = opened(
        ["opencv"], {"opencv": OPENCV}, Subject(net.graph, tuple(map(str, files)), {"data": X}, 1), tmp_path
    )  # type: ignore[arg-type]
    assert not isinstance(peer.run, str), peer.run
    np.testing.assert_array_equal(peer.run()[0], np.maximum(X, 0))
    program = start.MeasuredProgram("opencv", start.source(OPENCV.open), peer.words, {"data": SHAPE}, 1)
    assert start.problem(program, os.environ) is None
    assert "no.prototxt" in str(start.problem(program._replace(words=["no.prototxt", *peer.words[1:]]), os.environ))
