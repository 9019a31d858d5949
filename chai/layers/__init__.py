"""The layer types: a file for each, or for a family of small ones, imported on first use.

A file is named after its type: ``InnerProduct`` is in ``inner_product.py``. Adding a file adds the type; nothing has to be
registered but a type of a family. Files with a leading underscore hold code that several files share. The line after a type's
name at the head of its file is what ``chai layers`` prints.
"""

from __future__ import annotations

from functools import lru_cache

from ..graph import Layer
from ..util.paths import defined, modules

FAMILIES = {  # files with several types
    "batch_norm": "BatchNorm BN",
    "borders": "Crop Pad",
    "channels": "Concat ShuffleChannel Slice",
    "convolution": "Convolution ConvolutionDepthwise DepthwiseConvolution",
    "data": "AnnotatedData Data DenseImageData DummyData HDF5Data ImageData MemoryData WindowData",
    "elementwise": "AbsVal BNLL Clip ELU Erf Exp HardSwish Log Swish TanH Threshold",
    "eltwise": "Add Axpy Compare Eltwise MatMul Mul Where",
    "heads": "AnchorFreeDetectionOutput AnchoredDetectionOutput DecodedDetectionOutput",
    "identity": "Dropout Flatten Silence Split",
    "losses": "Accuracy ContrastiveLoss DetectionEvaluate EuclideanLoss HDF5Output HingeLoss InfogainLoss MultiBoxLoss "
    "MultinomialLogisticLoss SegmentationEvaluate SigmoidCrossEntropyLoss SoftmaxWithLoss YoloSeg YoloV3Loss Yolov3",
    "norms": "LayerNorm LRN MVN Normalize",
    "priors": "PriorBox Proposal",
    "pyramids": "ICNetSubgraph SPP",
    "recurrent": "ContinuationIndicator LSTM RNN",
    "reduction": "ArgMax Reduction",
    "regions": "PSROIPooling RoiAlign ROIPooling",
    "relu": "ReLU ReLU6",
    "repeat": "ResizeNearestNeighbor Upsample UpsampleDarknet",
    "resize": "GridSample Interp Resize",
    "scale": "Bias Scale",
    "selection": "BatchReindex Embed Filter",
    "shapes": "Permute ShapeOf Squeeze Tile",
    "softmax": "Sigmoid Softmax",
    "squares": "DepthToSpace Reorg",
    "windows": "Im2col Local",
    "yolo": "YoloDetectionOutput Yolov3DetectionOutput",
}


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    """Return the file of each type, by its name in small letters."""
    own = {
        stem.replace("_", ""): stem for stem in modules(__path__) if not stem.startswith("_") and stem not in FAMILIES
    }
    return own | {name: stem for stem, names in FAMILIES.items() for name in names.lower().split()}


def find(name: str) -> type[Layer] | None:
    """Return the class of a layer type (case-sensitive), or None if there is none."""
    stem = _files().get(name.lower())
    return None if stem is None else defined(__name__, stem, Layer).get(name)


def restored(name: str, bottoms: int) -> type[Layer] | None:
    """Return the class of a compiled network's layer: its type's, or what the pass ``unpool`` makes of an Upsample."""
    return defined(__name__, "_unpool", Layer)["MaxUnpool"] if (name, bottoms) == ("Upsample", 3) else find(name)


def spelled(text: str) -> str | None:
    """Return the type whose name is this text but for case and underscores, or None if there is none."""
    plain = text.replace("_", "").lower()
    names = defined(__name__, _files()[plain], Layer) if plain in _files() else ()
    return next((name for name in names if name.lower() == plain), None)


def types() -> list[str]:
    """Return the names of all layer types in alphabetical order."""
    files = _files()
    names = {name for stem in files.values() for name in defined(__name__, stem, Layer) if name.lower() in files}
    return sorted(names, key=str.lower)
