"""Source of a Net's plan in a compiled network: one plan, for the sizes and formats it was compiled with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from ..blob import Shape, show
from ..devices.base import Device
from ..env import env
from ..errors import DeviceError, UsageError
from ..fixed import Format
from ..offload.plan import Plan
from ..overlay import Overlay
from ..runtime.batches import rebatched
from ..runtime.execution import Execution
from ..runtime.steps.layers import prepare
from ..util.interpreter import Uncollected
from ..util.paths import stem
from .container import read
from .load import load, overlay_of

if TYPE_CHECKING:
    from ..offload.headroom import Basis
    from ..parser.caffemodel import Weights
    from ..passes.infer_shapes import Renewed
    from ..plugins.registry import Registry
    from ..zoo.card import Card
    from ..zoo.options import Options


class CompiledSource:
    """Source of a Net's plan in a .chai file. Operations that need a prototxt or caffemodel raise UsageError: neither is read.

    The engines that ``options`` name must be those of the file.
    """

    calibrated = True
    basis: Basis | None = None
    weights: Weights | None = None
    trained = True

    def __init__(self, options: Options, device: Device) -> None:
        path, custom = options.prototxt, options.custom
        assert not isinstance(path, bytes)  # only ONNX files may be
        artifact = read(path)
        target = overlay_of(artifact, options.overlay)
        if not device.fixed:
            what = f"{path} holds an overlay's Tasks in fixed point, device {device.name} computes in float32"
            raise DeviceError(what, hint=f"--device {target.simulator}, or load the prototxt and caffemodel")

        @cache
        def registry() -> Registry:
            from ..plugins.loading import registry_of  # of custom layers, which few files have

            return registry_of(custom, options.strict)

        if custom is not None or env().custom:
            registry()  # the user's files are run, whether the network needs them or not
        plan, self._card = load(artifact, target, registry)
        self.graph = plan.graph
        self.overlay: Overlay | None = target
        self.formats: Mapping[str, Format] | None = plan.formats
        self._name = plan.graph.name or stem(path)
        if options.engine:
            self._check_engines(options.engine, plan)
        self.device, self._plan = device, plan
        self._execution: Execution | None = None
        self._close_file = artifact.close

    @cached_property
    def card(self) -> Card:
        from ..zoo.card import DEFAULT, Card  # a pass needs none

        title, labels, preprocess = self._card
        return Card(title, labels, preprocess or DEFAULT)

    def batch(self, _shapes: Mapping[str, Shape]) -> int:
        return self._plan.batch

    def sized(self, sizes: Mapping[str, Shape], renewed: Renewed) -> dict[str, Shape]:
        """Return the file's shapes, with the batch of ``sizes``. Raises UsageError if anything but the batch differs.

        Raises ShapeError for tops that are ``renewed``: with other shapes than when it was compiled.
        """
        for name, shape in sizes.items():
            planned = self._plan.shapes[name]
            if tuple(shape[1:]) != planned[1:] or len(shape) != len(planned) or not shape[:1] > (0,):
                what = f"input {name!r} of {show(tuple(shape))}: {self._name} was compiled for {show(planned)}"
                raise UsageError(what, hint="any batch will do; for other sizes compile it again")
        batches = {shape[0] for shape in sizes.values() if shape}
        if len(batches) > 1:
            raise UsageError(f"inputs of different batches: {', '.join(map(str, sorted(batches)))}")
        if self._execution is None:
            with Uncollected():
                for layer in self.graph.layers:
                    if not layer.source and not layer.on_device:
                        prepare(layer, self._plan.shapes, True)
                self._execution = Execution(self._plan, self.device)
        for layer in self.graph.layers:
            if layer.name in renewed:
                fixed = (self._plan.shapes[top] for top in layer.tops)
                now, before = (", ".join(map(show, shapes)) for shapes in (renewed[layer.name], fixed))
                what = f"its tops are {now} in this pass: {self._name} was compiled for {before}"
                raise layer.wrong(what, hint="load the prototxt, which is planned for each size")
        return rebatched(self._plan, next(iter(batches), self._plan.batch))

    def planned(self, _shapes: Mapping[str, Shape]) -> bool:
        return True

    def execution(self, _shapes: Mapping[str, Shape], _keep: Collection[str]) -> Execution:
        assert self._execution is not None
        return self._execution

    def host(self, _shapes: Mapping[str, Shape]) -> NoReturn:
        what = f"{self._name} is compiled for an overlay: the host alone cannot run it"
        raise UsageError(what, hint="load the prototxt")

    def preview(self, _shapes: Mapping[str, Shape]) -> None:
        """Do nothing: the file has a plan."""

    def calibrate(self, *_: Any, **__: Any) -> NoReturn:
        hint = "chai compile ... --calibration FOLDER"
        raise UsageError(f"{self._name} is compiled: its formats are fixed", hint=hint)

    def params(self) -> NoReturn:
        what = f"{self._name} is compiled: its parameters cannot be changed, they are packed for the overlay"
        raise UsageError(what, hint="load the prototxt")

    def replaced(self) -> bool:
        return False

    def close(self) -> None:
        if self._execution is not None:
            self._execution.close()
        for layer in self.graph.layers:
            layer.blobs = []
            layer.close()
        self._close_file()

    def _check_engines(self, chosen: Mapping[str, str], plan: Plan) -> None:
        from ..offload.partition import engines_chosen  # few users name engines

        for name, engine in engines_chosen(plan.graph, chosen).items():
            if (own := plan.partition.engine(name)) != engine:
                what = f"{self._name} is compiled: layer {name!r} runs on {own}, not on {engine}"
                raise UsageError(what, hint="compile it again with --engine, or load the prototxt")
