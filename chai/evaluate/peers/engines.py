"""Open a network in another engine: a function per engine, which returns a function that runs it once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UsageError
from ...offload.formats import calibrated, unsigned_blobs
from ...overlay import load
from ...parser.caffemodel import write_caffemodel
from ...passes.infer_shapes import infer_shapes
from ...passes.rewrite import rewrite
from ...runtime import host
from ...util.lazy_numpy import np
from .ncnn import ncnn as write_ncnn
from .onnx import onnx

if TYPE_CHECKING:
    from ...blob import Array, Shape
    from ...fixed import Format
    from ...graph import Graph

    Run = Callable[[], list[Array]]  # returns the outputs in the network's order


class Subject(NamedTuple):
    """The network as its prototxt has it, its inputs, and how many threads an engine may use."""

    graph: Graph
    feeds: Mapping[str, Array]
    threads: int


def opencv(subject: Subject, _: bool) -> Run:
    """Read the Caffe files. Raises ImportError, UsageError."""
    import cv2

    graph = subject.graph
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        hint = 'pip install "opencv-python-headless<5"'
        raise UsageError(f"OpenCV {cv2.__version__} no longer reads Caffe files", hint=hint)
    cv2.setNumThreads(subject.threads)
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "net.caffemodel")
        blobs = [(layer.name, layer.type, layer.blobs) for layer in graph.layers if layer.blobs]
        write_caffemodel(weights, graph.name, blobs)
        try:
            net = cv2.dnn.readNetFromCaffe(graph.path, str(weights))
        except cv2.error as error:
            raise UsageError(f"OpenCV cannot read this network ({str(error).strip().splitlines()[-1]})") from error

    def run() -> list[Array]:
        for name, value in subject.feeds.items():
            net.setInput(value, name)
        try:
            return list(net.forward(graph.outputs))
        except cv2.error as error:
            raise UsageError(f"OpenCV cannot run this network ({str(error).strip().splitlines()[-1]})") from error

    return run


def onnxruntime(subject: Subject, fixed: bool) -> Run:
    """Read the network as ONNX. Raises ImportError, UsageError."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = subject.threads, 1
    options.log_severity_level = 4
    model, feeds, outputs = _model(subject, fixed)
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of types that the library does not document
        raise UsageError(f"onnxruntime cannot read this network ({_last(error)})") from error
    return lambda: list(session.run(outputs, feeds))


def openvino(subject: Subject, fixed: bool) -> Run:
    """Read the network as ONNX. Raises ImportError, UsageError."""
    import openvino as ov

    model, feeds, _ = _model(subject, fixed)
    options = {"INFERENCE_NUM_THREADS": subject.threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    try:
        core = ov.Core()
        compiled = core.compile_model(core.read_model(model), "CPU", options)
    except Exception as error:
        raise UsageError(f"OpenVINO cannot read this network ({_last(error)})") from error
    request, ports = compiled.create_infer_request(), compiled.outputs

    def run() -> list[Array]:
        results = request.infer(feeds)
        return [results[port] for port in ports]

    return run


def ncnn(subject: Subject, fixed: bool) -> Run:
    """Read the network as ncnn's files; a batch is run image by image, as ncnn has none. Raises ImportError, UsageError."""
    import ncnn

    graph, shapes, formats = _prepared(subject, fixed)
    outputs = [graph.latest[name] for name in graph.outputs]
    files = write_ncnn(graph, shapes, formats)
    net = ncnn.Net()
    net.opt.num_threads = subject.threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    with tempfile.TemporaryDirectory() as folder:
        param, weights = Path(folder, "net.param"), Path(folder, "net.bin")
        param.write_text(files.param)
        weights.write_bytes(files.weights)
        if net.load_param(str(param)) or net.load_model(str(weights)):
            raise UsageError("ncnn cannot read this network")
    images = [
        {files.names[blob]: np.ascontiguousarray(value[i]) for blob, value in subject.feeds.items()}
        for i in range(len(next(iter(subject.feeds.values()))))
    ]

    def once(image: Mapping[str, Array]) -> list[Array]:
        extractor = net.create_extractor()
        for name, value in image.items():
            extractor.input(name, ncnn.Mat(value))
        results = []
        for blob in outputs:
            failed, value = extractor.extract(files.names[blob])
            if failed:
                raise UsageError("ncnn cannot run this network")
            results.append(np.array(value).reshape(shapes[blob][1:]))
        return results

    return lambda: [np.stack(values) for values in zip(*map(once, images))]


ENGINES: dict[str, Callable[[Subject, bool], Run]] = {
    "opencv": opencv,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "ncnn": ncnn,
}
FIXED = ("onnxruntime", "openvino", "ncnn")  # engines that run 8 bits, too
EXTRA = {
    "opencv": "bench",
    "onnxruntime": "peers",
    "openvino": "peers",
    "ncnn": "peers",
}  # extra of chai that installs each


def opened(names: Iterator[str], subject: Subject, fixed: bool) -> Iterator[tuple[str, Run | str]]:
    """Yield each engine's name with a function that has run once, or the reason why there is none.

    With ``fixed`` those that can run 8 bits follow a second time, as "NAME int8".
    """
    for name in names:
        for codes in (False, True) if fixed and name in FIXED else (False,):
            try:
                run = ENGINES[name](subject, codes)
                run()
                peer: Run | str = run
            except ImportError:
                peer = f'it is not installed (pip install "chai-fpga[{EXTRA[name]}]")'
            except UsageError as error:
                peer = error.message + (f" ({error.hint})" if error.hint else "")
            yield f"{name} int8" if codes else name, peer


def _model(subject: Subject, fixed: bool) -> tuple[bytes, dict[str, Array], list[str]]:
    """Return the network as ONNX, and inputs and outputs by the names it has there."""
    graph, shapes, formats = _prepared(subject, fixed)
    return onnx(graph, shapes, formats), dict(subject.feeds), [graph.latest[name] for name in graph.outputs]


def _prepared(subject: Subject, fixed: bool) -> tuple[Graph, dict[str, Shape], dict[str, Format] | None]:
    """Return the graph after the passes, its shapes, and its blobs' formats, without those of the outputs, if ``fixed``."""
    graph = rewrite(subject.graph)
    shapes = infer_shapes(graph, {blob: feed.shape for blob, feed in subject.feeds.items()})
    if not fixed:
        return graph, shapes, None
    seen = {blob: float(np.abs(feed).max()) for blob, feed in subject.feeds.items()}

    def watch(blob: str, value: Array) -> None:
        seen[blob] = float(np.abs(value).max(initial=0))

    host.run(graph, shapes, subject.feeds, (), watch=watch)
    formats = calibrated(graph, seen, 8, "Xilinx", (), unsigned_blobs(graph, load()))  # as chai chooses on these inputs
    return graph, shapes, {blob: format for blob, format in formats.items() if blob not in graph.output_blobs}


def _last(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
