"""Engines that read other files than Caffe's: onnxruntime, OpenVINO and ncnn, in float32 and with 8-bit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chai.evaluate.bench.engines import OPENCV, PeerEngine
from chai.offload.formats import calibrated, unsigned_blobs
from chai.offload.headroom import Basis
from chai.overlay import load
from chai.passes.infer_shapes import infer_shapes
from chai.passes.rewrite import rewrite
from chai.runtime.host import forward
from chai.util.lazy_numpy import np

from .ncnn import ncnn
from .onnx import onnx

if TYPE_CHECKING:
    from chai.blob import Array, Shape
    from chai.evaluate.bench.engines import Run, Subject
    from chai.fixed import Format
    from chai.graph import Graph


def _onnxruntime(words: Sequence[str], feeds: Mapping[str, Array], threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    session = ort.InferenceSession(words[0], options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(feeds))


def _openvino(words: Sequence[str], feeds: Mapping[str, Array], threads: int) -> Run:
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(words[0], "CPU", options)
    request = compiled.create_infer_request()

    def run() -> list[Array]:
        results = request.infer(dict(feeds))
        return [results[port] for port in compiled.outputs]

    return run


def _ncnn(words: Sequence[str], feeds: Mapping[str, Array], threads: int) -> Run:
    """Run a batch image by image: ncnn has none."""
    import json

    import ncnn
    import numpy as np

    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    if net.load_param(words[0]) or net.load_model(words[1]):
        raise RuntimeError("its files cannot be read")
    names = json.loads(words[2])
    images = [
        {names["inputs"][blob]: np.ascontiguousarray(value[i]) for blob, value in feeds.items()}
        for i in range(len(next(iter(feeds.values()))))
    ]

    def once(image: Mapping[str, Array]) -> list[Array]:
        extractor = net.create_extractor()
        for name, value in image.items():
            extractor.input(name, ncnn.Mat(value))
        results = []
        for name in names["outputs"]:
            failed, value = extractor.extract(name)
            if failed:
                raise RuntimeError(f"blob {name!r} is not computed")
            results.append(np.array(value))
        return results

    return lambda: [np.stack(values) for values in zip(*map(once, images))]


def _onnx_file(subject: Subject, folder: Path, codes: bool) -> Sequence[str]:
    path = folder / f"{_stem(codes)}.onnx"
    path.write_bytes(onnx(*_rewritten(subject, codes)))
    return (str(path),)


def _ncnn_files(subject: Subject, folder: Path, codes: bool) -> Sequence[str]:
    """Return the paths of both files, and the names of inputs and outputs as JSON."""
    graph, shapes, formats = _rewritten(subject, codes)
    files = ncnn(graph, shapes, formats)
    param, weights = (folder / f"{_stem(codes)}.{ending}" for ending in ("param", "bin"))
    param.write_text(files.param)
    weights.write_bytes(files.weights)
    outputs = [files.names[graph.latest[blob]] for blob in graph.outputs]
    names = {"inputs": {blob: files.names[blob] for blob in graph.inputs}, "outputs": outputs}
    return str(param), str(weights), json.dumps(names)


def _stem(codes: bool) -> str:
    return "int8" if codes else "float"


def _rewritten(subject: Subject, codes: bool) -> tuple[Graph, Mapping[str, Shape], dict[str, Format] | None]:
    """Return the graph after the passes, its shapes, and with ``codes`` the formats of its blobs."""
    graph = rewrite(subject.graph)
    shapes = infer_shapes(graph, {blob: feed.shape for blob, feed in subject.feeds.items()})
    return graph, shapes, _formats(graph, shapes, subject.feeds) if codes else None


def _formats(graph: Graph, shapes: Mapping[str, Shape], feeds: Mapping[str, Array]) -> dict[str, Format]:
    """Return the formats of the blobs but the outputs, as chai would choose them on these inputs."""
    seen = {blob: float(np.abs(feed).max()) for blob, feed in feeds.items()}

    def watch(blob: str, value: Array) -> None:
        seen[blob] = float(np.abs(value).max(initial=0))

    forward.run(graph, shapes, feeds, (), watch=watch)
    basis = Basis(next(iter(feeds.values())).shape[0], 8, "Xilinx")
    formats = calibrated(graph, basis.widened(seen), 8, "Xilinx", (), unsigned_blobs(graph, load()))
    return {blob: format for blob, format in formats.items() if blob not in graph.output_blobs}


def _both(name: str, files: Callable[..., Sequence[str]], open: Callable[..., Run]) -> dict[str, PeerEngine]:
    """Return an engine in float32 and with codes."""
    kinds = {name: False, f"{name} int8": True}
    return {kind: PeerEngine(name, "peers", partial(files, codes=codes), open) for kind, codes in kinds.items()}


ENGINES: dict[str, PeerEngine] = {
    "opencv": OPENCV,
    **_both("onnxruntime", _onnx_file, _onnxruntime),
    **_both("openvino", _onnx_file, _openvino),
    **_both("ncnn", _ncnn_files, _ncnn),
}
