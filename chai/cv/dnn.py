"""``cv.dnn``: read networks of Caffe, and run them with chai.

What else cv2.dnn has, constants and other formats among it, is OpenCV's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from chai.blob import Array
from chai.env import env
from chai.errors import UsageError
from chai.images.opencv import blob_of, channel_means, factor_of, sized
from chai.net import Net as ChaiNet
from chai.runtime.batches import input_of, numbers
from chai.util.lazy_numpy import np
from chai.util.suggest import did_you_mean

CV_8U, CV_32F = 0, 5  # OpenCV's numbers of types


class CvNet:
    """A network with OpenCV's calls. ``net`` is the chai.Net, which is loaded again when other layers are asked for."""

    def __init__(self, prototxt: str | Path, caffemodel: str | Path | None, options: dict[str, Any]) -> None:
        self._load = partial(ChaiNet, prototxt, caffemodel, **{"device": env().device or "float", **options})
        self.net = self._load()
        self._feeds: dict[str, Array] = {}
        self._every = False

    def setInput(self, blob: Any, name: str = "", scalefactor: float = 1.0, mean: Any = None) -> None:  # noqa: N802
        """Feed a copy to an input, the first one without a name: (blob - mean per channel) * scalefactor."""
        name = input_of(self.net.graph, self.net.name, name or next(iter(self.net.inputs), ""))
        array, scale = numbers(name, blob, own=True), factor_of("setInput", scalefactor)
        means = channel_means("setInput", mean, array.shape[1] if array.ndim > 1 else 1)
        if means.any():
            array = array - means.astype(np.float32).reshape(-1, *[1] * (array.ndim - 2))
        self._feeds[name] = array if scale == 1 else array * np.float32(scale)

    def forward(self, outputName: str | Sequence[str] | None = None) -> Any:  # noqa: N803
        """Run the network; return the output of its last layer, or of the layer of that name; a tuple for several names."""
        one = not outputName or isinstance(outputName, str)
        names = [outputName or self.getLayerNames()[-1]] if one else [*(outputName or ())]
        blobs = [self._blob(str(name)) for name in names]
        if not self._every and not set(blobs).issubset(self.net.graph.output_blobs):
            self._every, self.net = True, self._load(keep="all")
        for name in self.net.inputs:
            if name not in self._feeds:
                raise UsageError(f"input {name!r} has no blob yet", hint=f"net.setInput(blob, {name!r})")
        self.net.forward(self._feeds)
        values = self.net.values
        return values[blobs[0]] if one else tuple(values[blob] for blob in blobs)

    def getLayerNames(self) -> tuple[str, ...]:  # noqa: N802
        """Return the names of all layers but the inputs."""
        return tuple(layer.name for layer in self.net.graph.layers if layer.tops and not layer.source)

    def getUnconnectedOutLayersNames(self) -> tuple[str, ...]:  # noqa: N802
        """Return the names of the layers that write an output."""
        outputs = set(self.net.graph.output_blobs)
        return tuple(layer.name for layer in self.net.graph.layers if not outputs.isdisjoint(layer.tops))

    def getUnconnectedOutLayers(self) -> Array:  # noqa: N802
        """Return the numbers of these layers: number 1 is the first of ``getLayerNames()``."""
        names, outputs = self.getLayerNames(), self.getUnconnectedOutLayersNames()
        return np.array([1 + names.index(name) for name in outputs], np.int32)

    def setPreferableBackend(self, backendId: int) -> None:  # noqa: N802, N803
        """Do nothing: ``device`` chooses where the network runs, when it is read."""

    def setPreferableTarget(self, targetId: int) -> None:  # noqa: N802, N803
        """Do nothing, as ``setPreferableBackend``."""

    def empty(self) -> bool:
        """Return whether it has no layers: never."""
        return False

    def __repr__(self) -> str:
        return repr(self.net).replace("<chai.Net", "<chai.cv.dnn network")

    def _blob(self, name: str) -> str:
        """Return the id of a layer's first top, before later layers change it in place; or of a blob."""
        graph = self.net.graph
        tops = {layer.name: layer.tops[0] for layer in graph.layers if layer.tops}
        if name not in tops and name not in graph.latest:
            raise UsageError(f"there is no layer {name!r} in {graph.path}", hint=did_you_mean(name, tops))
        return tops.get(name) or graph.latest[name]


def readNetFromCaffe(prototxt: str | Path, caffeModel: str | Path = "", **options: Any) -> CvNet:  # noqa: N802, N803
    """Load a network; ``options`` are those of chai.Net. Raises what chai.Net raises.

    The device is "float", with Caffe's numbers, unless CHAI_DEVICE or ``device`` names another.
    """
    return CvNet(prototxt, caffeModel or None, options)


def readNet(model: str | Path, config: str | Path = "", framework: str = "", **options: Any) -> CvNet:  # noqa: N802
    """Load a network from its two files in either order. Raises UsageError for another framework than Caffe."""
    if framework and framework.lower() != "caffe":
        raise UsageError(f"readNet: framework {framework!r}: expected caffe", hint="cv2.dnn reads others")
    files = [model, config] if str(model).endswith((".prototxt", ".chai")) else [config, model]
    if not files[0]:
        raise UsageError(f"readNet: {model} alone is no network", hint="give its .prototxt, too")
    return readNetFromCaffe(*files, **options)


def blobFromImage(  # noqa: N802
    image: Any,
    scalefactor: float = 1.0,
    size: Sequence[int] = (0, 0),
    mean: Any = (),
    swapRB: bool = False,  # noqa: N803
    crop: bool = False,
    ddepth: int = CV_32F,
) -> Array:
    """Return an image as a blob (1, C, height, width): (pixel - mean) * scalefactor, resized to ``size`` (width, height).

    The arguments are OpenCV's, and so are the numbers. Raises UsageError for what is no image.
    """
    return blobFromImages([image], scalefactor, size, mean, swapRB, crop, ddepth)


def blobFromImages(  # noqa: N802
    images: Sequence[Any],
    scalefactor: float = 1.0,
    size: Sequence[int] = (0, 0),
    mean: Any = (),
    swapRB: bool = False,  # noqa: N803
    crop: bool = False,
    ddepth: int = CV_32F,
) -> Array:
    """Return several images as one blob, see ``blobFromImage``."""
    if ddepth not in (CV_8U, CV_32F, None):
        raise UsageError(f"blobFromImage: ddepth {ddepth}: expected CV_32F ({CV_32F}) or CV_8U ({CV_8U})")
    scale = factor_of("blobFromImage", scalefactor)
    return blob_of((sized(image, size, crop) for image in images), scale, mean, swapRB, ddepth == CV_8U)


def own(module: str, asked: str, name: str) -> Any:
    """Return what OpenCV's ``module`` has under a name that ``asked``, a module of chai, does not have.

    Raises AttributeError that says which of both is missing.
    """
    if not name.startswith("__"):
        try:
            return getattr(import_module(module), name)
        except ImportError:
            raise AttributeError(
                f"module {asked!r} has no attribute {name!r}; if it is OpenCV's own: pip install opencv-python"
            ) from None
        except AttributeError:
            raise AttributeError(f"neither {asked!r} nor {module!r} has an attribute {name!r}") from None
    raise AttributeError(f"module {asked!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    return own("cv2.dnn", __name__, name)
