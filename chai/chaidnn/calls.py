"""CHaiDNN's calls over chai.Net, so that its programs can be ported line by line. docs/chaidnn.md compares the two.

A buffer takes the place of malloc in a C program: any writable object of the size in ``io_layer_info``, such as
``bytearray(size)`` or a numpy array. All buffers hold float32: images (C, H, W), blobs (N, C, H, W). CHaiDNN's hold codes
in its hardware's layout; here the device packs and unpacks internally, so the output buffer of one network can be the
input of the next, on any device. Calls that return int return 0; errors are raised as exceptions.
"""

# ruff: noqa: N801, N802, N803 - CHaiDNN's names

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from ..blob import Array, Shape, count, show
from ..errors import UsageError
from ..fixed import Format
from ..graph import Layer
from ..images.files import read
from ..images.preprocess import Preprocess
from ..layers.detection_output import DetectionOutput, NonMaximumSuppression
from ..net import Net
from ..offload.formats import has_formats
from ..overlay import load
from ..runtime import perf
from ..runtime.batches import numbers
from ..runtime.perf import PerfInfo
from ..text import number_of, tell
from ..util.files import path_of
from ..util.lazy_numpy import np
from ..util.sharing import Mutex
from .estimate import estimate, write

kernel_type_e = IntEnum(
    "kernel_type_e",
    "CONV POOL FC_LAYER SOFTMAX DECONV NORM PERMUTE NMS CROP ELTWISEADD XCUSTOM XPACK XUNPACK",
    start=0,
)
"""Kind of a network's last layer; XCUSTOM also covers types that CHaiDNN has no kernel for."""

_KERNELS = {
    "Convolution": kernel_type_e.CONV,
    "Pooling": kernel_type_e.POOL,
    "InnerProduct": kernel_type_e.FC_LAYER,
    "Softmax": kernel_type_e.SOFTMAX,
    "Deconvolution": kernel_type_e.DECONV,
    "Normalize": kernel_type_e.NORM,
    "Permute": kernel_type_e.PERMUTE,
    "DetectionOutput": kernel_type_e.NMS,
    "Crop": kernel_type_e.CROP,
    "Eltwise": kernel_type_e.ELTWISEADD,
}
_BOX = 7  # numbers of a detection: image, label, score, xmin, ymin, xmax, ymax
_FLOAT = 4  # bytes


@dataclass
class io_layer_info:
    """A network's input and output as described by xiInit, with CHaiDNN's field names.

    ``inlayer_exectype``, ``outlayer_exectype``    "hardware" or "software": where the first and last layer run
    ``inlayer_sizebytes``, ``outlayer_sizebytes``  bytes of a buffer for all images
    ``num_in_bufs``, ``num_out_bufs``              1: the device itself splits data as the hardware needs it
    ``in_height``, ``in_width``, ``in_channel``    size of an image; 0 unless is_first_layer
    ``in_depth``                                   equal to in_channel: chai does not pad, CHaiDNN pads 3 to 4
    ``in_bw``, ``in_fbits``, ``th_in``, ``quant_scheme_flag``  format of the input (flag 1: Xilinx); 0 unless
                                                   is_first_layer and the prototxt has formats (precision_param)
    ``out_size``                                   elements of one image's output; for detections the maximum
    ``out_kerType``                                kind of the last layer
    """

    inlayer_exectype: str = ""
    inlayer_sizebytes: int = 0
    outlayer_exectype: str = ""
    outlayer_sizebytes: int = 0
    num_in_bufs: int = 0
    num_out_bufs: int = 0
    in_height: int = 0
    in_width: int = 0
    in_bw: int = 0
    in_fbits: int = 0
    in_channel: int = 0
    in_depth: int = 0
    th_in: float = 0.0
    quant_scheme_flag: int = 0
    out_size: int = 0
    out_kerType: kernel_type_e = kernel_type_e.XCUSTOM


class _Handle:
    """Handle returned by xiInit. Passes of one handle run one at a time; different handles run in parallel."""

    def __init__(self, net: Net, info: io_layer_info) -> None:
        self.lock = Mutex()
        self.out_kerType = info.out_kerType
        self._net: Net | None = net

    @property
    def net(self) -> Net:
        if self._net is None:
            raise UsageError("this handle was released", hint="xiInit makes a new one")
        return self._net

    def release(self) -> None:
        if self._net is not None:
            self._net.close()
        self._net = None


def xiInit(
    dirpath: str | Path,
    prototxt: str,
    caffemodel: str | None,
    io_layer_info_ptr: io_layer_info,
    numImg_to_process: int,
    is_first_layer: bool,
    start_layer: str = "",
    end_layer: str = "",
    **options: Any,
) -> _Handle:
    """Return a handle for a network, or for its part from ``start_layer`` to ``end_layer``; fill ``io_layer_info_ptr``.

    ``prototxt``, ``caffemodel``   names inside ``dirpath``; a .chai file needs no caffemodel
    ``numImg_to_process``          images per pass: any number (CHaiDNN: one or two)
    ``is_first_layer``             the input is images: their size goes into ``io_layer_info_ptr``
    ``options``                    chai.Net's, such as device, overlay, custom, engine

    Raises UsageError for a part with several inputs or outputs (EP306, EP307), and what chai.Net raises.
    """
    _described(io_layer_info_ptr)
    weights = Path(path_of(dirpath), path_of(caffemodel)) if caffemodel else None
    options |= {"batch": numImg_to_process, "start_layer": start_layer, "end_layer": end_layer}
    net = Net(Path(path_of(dirpath), path_of(prototxt)), weights, **options)
    for what, names in (("inputs", net.inputs), ("outputs", net.outputs)):
        if len(names) != 1:
            raise UsageError(
                f"{net.name} has {len(names)} {what} ({', '.join(names)}); this interface has buffers for one",
                hint="choose start_layer and end_layer, or use chai.Net",
            )
    vars(io_layer_info_ptr).update(vars(_describe(net, is_first_layer)))
    return _Handle(net, io_layer_info_ptr)


def xiExec(chai_handle: _Handle, input: Sequence[Any], output: Sequence[Any]) -> None:
    """Run a batch: ``input`` and ``output`` are lists of one buffer each.

    Detections are stored as in CHaiDNN: for each image their number, then seven numbers per detection.
    """
    with _open(chai_handle).lock:
        net = chai_handle.net
        shape = net.shapes[net.inputs[0]]
        data = _floats(input, count(shape), "input")
        result = net.forward(data.reshape(shape))[net.outputs[0]]
        if chai_handle.out_kerType == kernel_type_e.NMS:
            result = _counted(result, shape[0])
        _floats(output, result.size, "output", write=True)[:] = result.reshape(-1)


def xiRelease(chai_handle: _Handle) -> None:
    """Close a network after any running pass has ended; a second call does nothing."""
    with _open(chai_handle).lock:
        chai_handle.release()


def getPerfInfo(handle: _Handle | Net, **options: Any) -> PerfInfo:
    """Return the report of the last pass of a handle or a Net; ``options`` are those of chai.getPerfInfo."""
    return perf.getPerfInfo(handle.net if isinstance(handle, _Handle) else handle, **options)


def inputNormalization(
    input: Sequence[Any],
    resize_h: int,
    resize_w: int,
    img_path1: str | Path,
    img_path2: str | Path | None,
    inp_mode: bool,
    mean_ptr: Any,
    var_ptr: Any,
    numImg_to_process: int,
    io_layer_info_ptr: io_layer_info,
) -> int:
    """Read one or two images into ``input``, a buffer for each: resized, cut from the centre, normalised.

    ``inp_mode``   false: pixel - mean; true: (pixel / 255 - mean) / var
    ``mean_ptr``   a number per channel in the order B, G, R, or an array (C, H, W); None: no mean is subtracted
    ``var_ptr``    a number per channel; ignored if ``inp_mode`` is false

    A buffer holds C * H * W floats, unrounded: the device quantises with rounding when it packs, whereas CHaiDNN's
    DynamicFixed lets a mean beyond int8 wrap. For more than two images call this again with the next buffers.
    """
    if numImg_to_process not in (1, 2):
        hint = "for more call it again with the next buffers: inputNormalization(buffers[2:4], ...)"
        raise UsageError(f"{numImg_to_process} images in a call that takes one or two", hint=hint)
    shape = _image(io_layer_info_ptr)
    mean = () if mean_ptr is None else numbers("mean_ptr", mean_ptr)
    var = numbers("var_ptr", var_ptr if inp_mode and var_ptr is not None else (1,))
    if var.size not in (1, shape[0]):
        raise UsageError(f"var_ptr has {number_of(var.size, 'number')}, expected one per channel: {shape[0]}")
    process = Preprocess().with_options(resize=(resize_h, resize_w), mean=mean, raw_scale=1.0 if inp_mode else 255.0)
    for i, path in enumerate((img_path1, img_path2)[:numImg_to_process]):
        if path is None:
            raise UsageError("img_path2 is missing")
        item = process(read(path), (1, *shape))
        if inp_mode:
            item = item / var.reshape(-1, 1, 1)
        _floats(input, item.size, "input", i, write=True)[:] = item.reshape(-1)
    return 0


def xiInputRead(
    normalizeinput: Sequence[Any], input: Sequence[Any], numImg_to_process: int, io_layer_info_ptr: io_layer_info
) -> int:
    """Copy the images of ``normalizeinput``, one buffer each, into the single buffer that xiExec takes."""
    size = count(_image(io_layer_info_ptr))
    batch = io_layer_info_ptr.inlayer_sizebytes // (_FLOAT * size)
    if numImg_to_process != batch:
        raise UsageError(f"{number_of(numImg_to_process, 'image')} for a network that xiInit made for {batch}")
    whole = _floats(input, batch * size, "input", write=True).reshape(batch, size)
    for i in range(batch):
        whole[i] = _floats(normalizeinput, size, "normalizeinput", i)
    return 0


def xiUnpackOutput(
    exec_output: Sequence[Any],
    unpack_output: Sequence[Any],
    out_kerType: kernel_type_e,
    out_layer_size: int,
    numImg_to_process: int,
) -> int:
    """Split the output of xiExec into one buffer per image, for any kind of last layer.

    For detections a buffer holds their number, then seven numbers for each.
    """
    whole = _floats(exec_output, None, "exec_output")
    start = 0
    for i in range(numImg_to_process):
        size = _stored(whole[start:], out_kerType, out_layer_size)
        part = _floats(unpack_output, size, "unpack_output", i, write=True)
        part[:] = whole[start : start + size]
        start += size
    return 0


def outputWrite(
    dirpath: str | Path,
    img_path: str | Path,  # noqa: ARG001 - CHaiDNN's signature
    unpack_output: Sequence[Any],
    numImg_to_process: int,
    io_layer_info_ptr: io_layer_info,
    ping_pong: int = 0,
) -> int:
    """Write each image's output to ``dirpath``/out/out_IMAGE_PINGPONG.txt, one number per line; print a softmax's top 5.

    The folder is created if it is missing (CHaiDNN fails). As in CHaiDNN, ``img_path`` is not used.
    """
    info = _described(io_layer_info_ptr)
    kind, size = info.out_kerType, info.out_size
    folder = Path(path_of(dirpath), "out")
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(numImg_to_process):
        values = _floats(unpack_output, None, "unpack_output", i)
        values = values[: _stored(values, kind, size)]
        # segmentation labels are integers, and are written as such
        form = "%d\n" if kind == kernel_type_e.CROP and np.array_equal(values, np.rint(values)) else "%f\n"
        path = folder / f"out_{i}_{ping_pong}.txt"
        _say(f"[OUTWR] Write Path : {path}\n")
        path.write_text("".join(form % v for v in values))
        if kind == kernel_type_e.SOFTMAX:
            _say(f"[INFOx] Classification Output for batch : {i}")
            for label in np.argsort(-values, kind="stable")[:5]:
                _say(f"[INFOx] classId : {label}, score : {values[label]:f}")
            _say("")
    return 0


def xiEval(layerspec_csv: str | Path, *, overlay: str | Path | None = None) -> int:
    """Estimate milliseconds per image for every layer of a list; print them on stderr and write ./neteval.csv.

    CHaiDNN times its hardware, two images at a time; this is a model of ``overlay`` (default: pynq-z2). See
    chai.estimate for the list. Raises ParseError with line and column.
    """
    estimates = estimate(layerspec_csv, load() if overlay is None else load(overlay))
    for e in estimates:
        _say(" ".join(["[EVALx]", e.type, *map(str, e.numbers)]) + (f"   ({e.reason})" if e.reason else ""))
        _say(f"[PERFM] Estimated time : {e.ms:f} ms\n")
    write(estimates, "neteval.csv")
    return 0


# -- inside


def _describe(net: Net, image: bool) -> io_layer_info:
    blob, last = net.inputs[0], net.graph.writers[net.graph.output_blobs[0]]
    if blob not in net.shapes:
        raise UsageError(f"the prototxt does not say the size of input {blob!r}", hint=f"shapes={{{blob!r}: (1, ...)}}")
    format = _format(net, blob)
    shape, out_shape = net.shapes[blob], net.shapes[net.outputs[0]]
    first = net.graph.readers[blob][0]
    if isinstance(last, DetectionOutput):
        size = 1 + _BOX * _boxes(last, net.shapes[net.graph.caffe_name(last.bottoms[2])])
    elif out_shape[:1] == shape[:1]:
        size = count(out_shape[1:])
    else:
        raise UsageError(f"output {net.outputs[0]!r} is {show(out_shape)}: not a part for each of {shape[0]} images")
    info = io_layer_info(
        inlayer_exectype=_place(net, first),
        inlayer_sizebytes=_FLOAT * count(shape),
        outlayer_exectype=_place(net, last),
        outlayer_sizebytes=_FLOAT * size * shape[0],
        num_in_bufs=1,
        num_out_bufs=1,
        out_size=size,
        out_kerType=_KERNELS.get(last.type, kernel_type_e.XCUSTOM),
    )
    if image:
        if len(shape) != 4:
            raise UsageError(f"input {blob!r} is {show(shape)}, no images", hint="is_first_layer=False")
        info.in_channel, info.in_height, info.in_width = shape[1:]
        info.in_depth = info.in_channel
        if format is not None and format.scheme == "Xilinx":
            info.in_bw, info.th_in, info.quant_scheme_flag = format.bits, format.value, 1
        elif format is not None:
            info.in_bw, info.in_fbits = format.bits, int(format.value)
    return info


def _format(net: Net, blob: str) -> Format | None:
    """Return the format of ``blob`` if it is known before the first data, else None."""
    if net.overlay is None:
        return None
    own = has_formats(net.offload.graph)
    if own and not net.calibrated:
        net.plan()
    return (net.formats or {}).get(blob) if own or net.calibrated else None


def _place(net: Net, layer: Layer) -> str:
    fpga = net.overlay is not None and net.partition.engine(layer.name) == "fpga"
    return "hardware" if fpga else "software"


def _boxes(layer: DetectionOutput, prior: Shape) -> int:
    """Return the maximum number of detections in an image."""
    p = layer.params
    nms = p.nms_param or NonMaximumSuppression()
    priors = prior[2] // 4
    of_class = priors if nms.top_k is None or nms.top_k < 0 else min(nms.top_k, priors)
    most: int = of_class * p.num_classes
    return most if p.keep_top_k < 0 else min(most, p.keep_top_k)


def _counted(rows: Array, images: int) -> Array:
    """Return detections (1, 1, number, 7) in CHaiDNN's layout, without the row of -1 that Caffe writes if there are none."""
    rows = rows.reshape(-1, _BOX)
    rows = rows[rows[:, 1] >= 0]
    parts: list[Array] = []
    for i in range(images):
        own = rows[rows[:, 0] == i]
        parts += [np.array([len(own)], np.float32), own.reshape(-1)]
    return np.concatenate(parts)


def _stored(values: Array, kind: kernel_type_e, size: int) -> int:
    """Return how many leading ``values`` belong to an image: ``size``, or as many as its number of detections implies."""
    if kind == kernel_type_e.NMS:
        detections, most = values[0] if len(values) else 0, (size - 1) // _BOX
        if not 0 <= detections <= most:
            raise UsageError(f"{detections:g} detections where there can be {most}", hint="xiExec comes first")
        size = 1 + _BOX * int(detections)
    if len(values) < size:
        raise UsageError(
            f"{number_of(len(values), 'number')} left in the buffer for an image of {size}", hint="see io_layer_info"
        )
    return size


def _open(handle: Any) -> _Handle:
    if not isinstance(handle, _Handle):
        raise UsageError(f"expected a handle of xiInit, found {type(handle).__name__}")
    return handle


def _described(info: Any) -> io_layer_info:
    if not isinstance(info, io_layer_info):
        hint = "io_layer_info_ptr = io_layer_info(), which xiInit fills"
        raise UsageError(f"expected an io_layer_info, found {type(info).__name__}", hint=hint)
    return info


def _image(info: io_layer_info) -> Shape:
    if not _described(info).in_channel:
        raise UsageError("this network takes no images", hint="xiInit(..., is_first_layer=True, ...)")
    return info.in_channel, info.in_height, info.in_width


def _floats(
    buffers: Sequence[Any], elements: int | None, name: str, image: int | None = None, *, write: bool = False
) -> Array:
    """Return the first ``elements`` floats (None: all) of the buffer of an image, or of the only one (None).

    Raises UsageError for an absent or unsuitable buffer.
    """
    if isinstance(buffers, (bytes, bytearray, memoryview)) or not hasattr(buffers, "__len__"):
        raise UsageError(
            f"{name}: expected a list of buffers, found {type(buffers).__name__}", hint="[bytearray(size)]"
        )
    if image is None and len(buffers) != 1:
        raise UsageError(f"{name}: {len(buffers)} buffers, expected 1", hint="io_layer_info says how many")
    if image is not None and image >= len(buffers):
        raise UsageError(f"{name}: {len(buffers)} buffers, expected one for each image")
    buffer = buffers[image or 0]
    try:
        view = memoryview(buffer)
    except TypeError:
        raise UsageError(f"{name}: expected a buffer, found {type(buffer).__name__}", hint="bytearray(size)") from None
    if view.format.strip("<=@") not in ("f", "B", "b", "c") or not view.c_contiguous:
        hint = "bytearray(size), or np.empty(elements, np.float32)"
        raise UsageError(f"{name}: expected one run of bytes or of float32", hint=hint)
    if write and view.readonly:
        raise UsageError(f"{name}: this buffer is read-only")
    elements = view.nbytes // _FLOAT if elements is None else elements
    if view.nbytes < _FLOAT * elements:
        hint = "buffers hold float32; io_layer_info says how many bytes"
        raise UsageError(f"{name}: a buffer of {view.nbytes:,} bytes, expected {_FLOAT * elements:,}", hint=hint)
    floats: Array = np.frombuffer(view, np.float32, elements)
    return floats


def _say(text: str) -> None:
    tell(sys.stderr, *text.split("\n"))
