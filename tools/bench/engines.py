"""Engines that read other files than Caffe's: onnxruntime, OpenVINO, ncnn and MNN, in float32 and some with 8-bit codes."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chai.errors import UsageError
from chai.evaluate.bench.engines import OPENCV, PeerEngine
from chai.offload.formats import calibrated, unsigned_blobs
from chai.offload.headroom import Basis
from chai.overlay import load
from chai.passes.infer_shapes import infer_shapes
from chai.passes.rewrite import rewrite
from chai.runtime.steps import forward
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
    from functools import partial

    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(words[0], "CPU", options).create_infer_request()

    def run(request: Any) -> list[Array]:
        results = request.infer(dict(feeds))
        return [results[port] for port in request.model_outputs]

    return partial(run, request)


def _primitives(run: Any) -> Iterable[str]:
    """Return the names of the kernels that OpenVINO chose: brgconv_avx512_amx_I8, ..."""
    operations = run.args[0].get_compiled_model().get_runtime_model().get_ops()
    return [operation.get_rt_info()["primitiveType"].astype(str) for operation in operations]


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


def _nncf_file(subject: Subject, folder: Path) -> Sequence[str]:
    """Quantise the float32 network as OpenVINO's own tool does, on the same inputs."""
    import nncf
    import openvino

    model, path = openvino.Core().read_model(*_onnx_file(subject, folder, False)), folder / "nncf.xml"
    images, mixed = nncf.Dataset([dict(subject.feeds)]), nncf.QuantizationPreset.MIXED
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        openvino.save_model(nncf.quantize(model, images, preset=mixed, subset_size=1), path)
    return (str(path),)


def _mnn_file(subject: Subject, folder: Path) -> Sequence[str]:
    """Convert the float32 network with MNN's own tool; return its path, and the blobs of inputs and outputs as JSON."""
    (onnx_file,), path = _onnx_file(subject, folder, False), folder / "net.mnn"
    command = ["-f", "ONNX", "--modelFile", onnx_file, "--MNNModel", str(path), "--bizCode", "chai"]
    code = "import sys; from MNN.tools.mnnconvert import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    if not path.is_file():
        raise UsageError(f"its converter failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    graph = rewrite(subject.graph)
    return str(path), json.dumps([[*subject.feeds], [graph.latest[blob] for blob in graph.outputs]])


def _mnn(words: Sequence[str], feeds: Mapping[str, Array], threads: int) -> Run:
    import json

    import MNN
    import MNN.expr
    import numpy as np

    inputs, outputs = json.loads(words[1])
    runtime = MNN.nn.create_runtime_manager(({"backend": "CPU", "numThread": threads, "precision": "high"},))
    net = MNN.nn.load_module_from_file(words[0], inputs, outputs, runtime_manager=runtime)

    def run() -> list[Array]:
        values = [MNN.expr.const(feeds[blob], list(feeds[blob].shape), MNN.expr.NCHW) for blob in inputs]
        return [np.array(MNN.expr.convert(top, MNN.expr.NCHW).read()) for top in net.forward(values)]

    return run


def _dispatched(*features: str) -> Callable[[Any], Iterable[str]]:
    """Return what names the best of these features that the processor has, for an engine that takes it and tells nothing."""

    def best(_: Any) -> Iterable[str]:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        flags = next((line.split() for line in lines if line.startswith(("flags", "Features"))), [])
        return [feature for feature in features if feature in flags][:1]

    return best


def _both(
    name: str,
    files: Callable[..., Sequence[str]],
    open: Callable[..., Run],
    *instructions: Callable[[Any], Iterable[str]],
) -> dict[str, PeerEngine]:
    """Return an engine in float32 and with codes; what names the instructions of both, or of each."""
    kinds = {name: False, f"{name} int8": True}
    return {
        kind: PeerEngine(name, "peers", partial(files, codes=codes), open, instructions[codes and -1])
        for kind, codes in kinds.items()
    }


_FLOATS, _CODES = ("avx512f", "avx2", "asimd"), ("avx512_vnni", "avx_vnni", "avx512f", "avx2", "asimddp", "asimd")
ENGINES: dict[str, PeerEngine] = {
    "opencv": OPENCV,
    **_both("onnxruntime", _onnx_file, _onnxruntime, _dispatched(*_FLOATS), _dispatched("amx_int8", *_CODES)),
    **_both("openvino", _onnx_file, _openvino, _primitives),
    "openvino nncf int8": PeerEngine("openvino", "peers", _nncf_file, _openvino, _primitives),
    **_both("ncnn", _ncnn_files, _ncnn, _dispatched(*_FLOATS), _dispatched(*_CODES)),
    "mnn": PeerEngine("MNN", "peers", _mnn_file, _mnn),
}
