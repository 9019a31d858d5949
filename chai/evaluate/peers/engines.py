"""Open a network in another engine: a function per engine, which returns a function that runs it once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...errors import UsageError
from ...offload.formats import calibrated, unsigned_blobs
from ...offload.headroom import Basis
from ...overlay import load
from ...passes.infer_shapes import infer_shapes
from ...passes.rewrite import rewrite
from ...runtime.host import forward
from ...util.lazy_numpy import np
from .ncnn import ncnn as write_ncnn
from .onnx import onnx

if TYPE_CHECKING:
    from ...blob import Array, Shape
    from ...fixed import Format
    from ...graph import Graph

    Run: TypeAlias = Callable[[], list[Array]]  # returns the outputs in the network's order


class Subject(NamedTuple):
    """A network: its graph as its prototxt has it, the paths of its Caffe files, its inputs, and the threads it may use."""

    graph: Graph
    files: tuple[str, str]
    feeds: Mapping[str, Array]
    threads: int


def opencv(subject: Subject, files: Sequence[str]) -> Run:
    """Read the Caffe files. Raises ImportError, UsageError."""
    import cv2

    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        hint = 'pip install "opencv-python-headless<5"'
        raise UsageError(f"OpenCV {cv2.__version__} no longer reads Caffe files", hint=hint)
    cv2.setNumThreads(subject.threads)
    try:
        net = cv2.dnn.readNetFromCaffe(*files)
    except cv2.error as error:
        raise UsageError(f"OpenCV cannot read this network ({_last(error)})") from error

    def run() -> list[Array]:
        for name, value in subject.feeds.items():
            net.setInput(value, name)
        try:
            return list(net.forward(subject.graph.outputs))
        except cv2.error as error:
            raise UsageError(f"OpenCV cannot run this network ({_last(error)})") from error

    return run


def onnxruntime(subject: Subject, files: Sequence[str]) -> Run:
    """Read the network as ONNX. Raises ImportError, UsageError."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = subject.threads, 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(files[0], options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of types that the library does not document
        raise UsageError(f"onnxruntime cannot read this network ({_last(error)})") from error
    return lambda: list(session.run(None, dict(subject.feeds)))


def openvino(subject: Subject, files: Sequence[str]) -> Run:
    """Read the network as ONNX. Raises ImportError, UsageError."""
    import openvino as ov

    options = {"INFERENCE_NUM_THREADS": subject.threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    try:
        core = ov.Core()
        compiled = core.compile_model(core.read_model(files[0]), "CPU", options)
    except Exception as error:
        raise UsageError(f"OpenVINO cannot read this network ({_last(error)})") from error
    request, ports, feeds = compiled.create_infer_request(), compiled.outputs, dict(subject.feeds)

    def run() -> list[Array]:
        results = request.infer(feeds)
        return [results[port] for port in ports]

    return run


def ncnn(subject: Subject, files: Sequence[str]) -> Run:
    """Read ncnn's files; a batch is run image by image, as ncnn has none. Raises ImportError, UsageError."""
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = subject.threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    if net.load_param(files[0]) or net.load_model(files[1]):
        raise UsageError("ncnn cannot read this network")
    names = json.loads(files[2])
    images = [
        {names["inputs"][blob]: np.ascontiguousarray(value[i]) for blob, value in subject.feeds.items()}
        for i in range(len(next(iter(subject.feeds.values()))))
    ]

    def once(image: Mapping[str, Array]) -> list[Array]:
        extractor = net.create_extractor()
        for name, value in image.items():
            extractor.input(name, ncnn.Mat(value))
        results = []
        for name in names["outputs"]:
            failed, value = extractor.extract(name)
            if failed:
                raise UsageError("ncnn cannot run this network")
            results.append(np.array(value))
        return results

    return lambda: [np.stack(values) for values in zip(*map(once, images))]


ENGINES: dict[str, Callable[[Subject, Sequence[str]], Run]] = {
    "opencv": opencv,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "ncnn": ncnn,
}
MODULES = {"opencv": "cv2", "onnxruntime": "onnxruntime", "openvino": "openvino", "ncnn": "ncnn"}
FIXED = ("onnxruntime", "openvino", "ncnn")  # engines that run 8 bits, too
EXTRA = {
    "opencv": "bench",
    "onnxruntime": "peers",
    "openvino": "peers",
    "ncnn": "peers",
}  # extra of chai that installs each


class Peer(NamedTuple):
    """An engine with a network: ``run`` computes the outputs, or is the reason why it cannot.

    ``files`` are the arguments that ``engine`` opens.
    """

    name: str
    engine: str
    files: Sequence[str]
    run: Run | str


def opened(names: Iterable[str], subject: Subject, fixed: bool, folder: Path) -> Iterator[Peer]:
    """Yield each engine after it has run once, or the reason why it cannot; its files are written to ``folder``.

    With ``fixed`` those that can run 8 bits follow a second time, as "NAME int8".
    """
    for name in names:
        for codes in (False, True) if fixed and name in FIXED else (False,):
            files: Sequence[str] = ()
            run: Run | str
            try:
                files = _files(name, subject, codes, folder)
                run = ENGINES[name](subject, files)
                run()
            except ImportError:
                run = f'it is not installed (pip install "chai-fpga[{EXTRA[name]}]")'
            except UsageError as error:
                run = error.message + (f" ({error.hint})" if error.hint else "")
            yield Peer(f"{name} int8" if codes else name, name, files, run)


def _files(name: str, subject: Subject, fixed: bool, folder: Path) -> Sequence[str]:
    """Return the arguments that an engine opens: paths, and for ncnn the names of inputs and outputs as JSON."""
    if name == "opencv":
        return subject.files
    stem = str(folder / ("int8" if fixed else "float"))
    graph = rewrite(subject.graph)
    shapes = infer_shapes(graph, {blob: feed.shape for blob, feed in subject.feeds.items()})
    formats = _formats(graph, shapes, subject.feeds) if fixed else None
    if name == "ncnn":
        files = write_ncnn(graph, shapes, formats)
        Path(f"{stem}.param").write_text(files.param)
        Path(f"{stem}.bin").write_bytes(files.weights)
        outputs = [files.names[graph.latest[blob]] for blob in graph.outputs]
        names = {"inputs": {blob: files.names[blob] for blob in graph.inputs}, "outputs": outputs}
        return f"{stem}.param", f"{stem}.bin", json.dumps(names)
    Path(f"{stem}.onnx").write_bytes(onnx(graph, shapes, formats))
    return (f"{stem}.onnx",)


def _formats(graph: Graph, shapes: Mapping[str, Shape], feeds: Mapping[str, Array]) -> dict[str, Format]:
    """Return the formats of the blobs but the outputs, as chai would choose them on these inputs."""
    seen = {blob: float(np.abs(feed).max()) for blob, feed in feeds.items()}

    def watch(blob: str, value: Array) -> None:
        seen[blob] = float(np.abs(value).max(initial=0))

    forward.run(graph, shapes, feeds, (), watch=watch)
    basis = Basis(next(iter(feeds.values())).shape[0], 8, "Xilinx")
    formats = calibrated(graph, basis.widened(seen), 8, "Xilinx", (), unsigned_blobs(graph, load()))
    return {blob: format for blob, format in formats.items() if blob not in graph.output_blobs}


def _last(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
