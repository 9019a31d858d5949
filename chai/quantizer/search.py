"""quantize: choose formats and weights for a network by the error of its outputs on the calibration images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

from threadpoolctl import threadpool_limits

from ..errors import UsageError
from ..graph import Graph
from ..net import Net
from ..passes.rewrite import rewrite
from ..tasks.arithmetic import arithmetic
from ..text import number_of
from ..util.data.shelf import Shelf
from ..util.keywords import function_of
from ..util.lazy_numpy import np
from ..util.log import logger
from ..zoo import is_onnx
from ..zoo.locate import FORMATS, files_of, locate
from ..zoo.options import Reading
from . import alone, registers
from .build import Built, RecipeBuilder
from .groups import Bits, Codes, Widths, scores, spelled
from .observe import READ_IMAGES, Observed, batches_of, observe
from .progress import Known, run_of
from .recipe import EFFORTS, PLAIN, TOGETHER, Recipe, SearchStage, changed, of_formats
from .walk import Batch, Emulation
from .writeback import check_form, save, save_formats

log = logger("chai.quantizer")
VIEWS = 2  # of an image
WIDTHS = 8, 6  # bits of a code
BUDGET = 0.1  # of the multiply-accumulates
OUTPUTS, BOXES = JUDGES = "outputs", "boxes"  # what a network is judged by


@dataclass(frozen=True)
class Request(Reading):
    """The arguments of ``quantize``, which describes them. Raises UsageError for values that make no sense."""

    prototxt: str | Path
    caffemodel: str | Path | None
    inputs: Iterable[Any]
    output: str | Path
    _: KW_ONLY
    bits: Widths = 8
    budget: float = BUDGET
    judge: str = OUTPUTS
    scheme: str | None = None
    effort: str = "normal"
    wider: Mapping[str, int] | None = None
    limit: int | None = None
    views: Iterable[Any] | None = None
    seed: int = 0
    chaidnn: bool = False
    recipe: Recipe | None = None
    journal: str | Path | None = None
    restart: bool = False
    watch: Callable[[str, float], None] = lambda _what, _share: None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}: expected 0 or more", hint="the default is 0")
        if not 0 <= self.budget <= 1:
            raise UsageError(f"budget {self.budget:g}: expected a share of the multiply-accumulates, 0 to 1")
        if self.recipe is not None and self.onnx and (self.recipe.fits or self.recipe.equalise):
            raise UsageError(f"recipe {self.recipe}: the weights of an ONNX file are kept")
        if self.chaidnn and self.onnx:
            raise UsageError("chaidnn: CHaiDNN reads no ONNX files")
        widths = self.bits if isinstance(self.bits, tuple) else (self.bits,)
        if self.bits != "mixed" and (len(widths) not in (1, 3) or any(width not in WIDTHS for width in widths)):
            message = f"bits {spelled(self.bits)}: expected 8 or 6, three of them, or mixed"
            raise UsageError(message, hint="three are a tuple: (8, 6, 6)")
        wider = self.wider or {}
        if not isinstance(wider, Mapping) or any(
            not isinstance(name, str) or width not in WIDTHS for name, width in wider.items()
        ):
            raise UsageError(f"wider {self.wider!r}: expected 8 or 6 by layer", hint='wider={"conv1": 8}')
        if self.judge not in JUDGES:
            raise UsageError(f"judge {self.judge!r}: expected one of {', '.join(JUDGES)}")
        if self.effort not in [*EFFORTS]:  # a list has no hash
            raise UsageError(f"effort {self.effort!r}: expected one of {', '.join(EFFORTS)}")
        self._check_output(Path(self.output))

    @cached_property
    def onnx(self) -> bool:
        """Return whether it is an ONNX file, whose formats are a file of their own, and whose weights are kept."""
        return is_onnx(self.prototxt)

    @property
    def searched(self) -> tuple[SearchStage, ...]:
        """Return the stages of the search."""
        return of_formats(EFFORTS[self.effort]) if self.onnx else EFFORTS[self.effort]

    def _check_output(self, output: Path) -> None:
        if self.onnx and not output.name.endswith(FORMATS):
            message = f"{str(output)!r}: the output for an ONNX file is a {FORMATS}, which is given with it"
            raise UsageError(message, hint=f"name it {output.with_name(output.name.partition('.')[0] + FORMATS)}")
        if not self.onnx and output.suffix != ".prototxt":
            message = f"{str(output)!r}: the output is a .prototxt; its weights go into the same folder"
            raise UsageError(message, hint=f"name it {output.with_suffix('.prototxt')}")
        if not output.parent.is_dir():
            message = f"there is no folder {str(output.parent)!r} to write into"
            raise UsageError(message, hint=f"mkdir -p {output.parent}")
        for source in (self.prototxt, self.caffemodel or self.prototxt):
            for target in (output, *(() if self.onnx else (output.with_suffix(".caffemodel"),))):
                if target.exists() and Path(source).exists() and target.samefile(source):
                    message = f"{str(target)!r} would be written over what it is made from"
                    raise UsageError(message, hint="name another output")


@dataclass
class Result:
    """The files that ``quantize`` wrote, and a record of the search.

    ``prototxt``, ``caffemodel``   the quantised network; of an ONNX file the model as it was, and its formats
    ``tried``    every recipe with its cost, in order: KL(float || fixed) in nats per image for class probabilities, error
                 energy / signal energy for other outputs; with ``judge`` boxes see ``boxes.disagreement``
    ``plain``    cost of formats that cover the largest values, the usual choice with CHaiDNN
    ``images``   number of all calibration images; ``batches`` holds those that recipes were judged on, and they lie on
                 ``shelf``
    ``costs``    cost by layer if all others ran in float, on a few of those images
    ``widened``  layers to which mixed widths gave 8 bits, each with its share of the multiply-accumulates
    ``beyond``   what layers of a file without unsigned codes do on a CHaiDNN board that its registers do not hold, by layer
    ``seconds``  wall-clock time, including ``observing`` for the float pass
    ``how``      the options bits, budget, scheme, effort, seed and judge
    """

    prototxt: Path
    caffemodel: Path
    built: Built
    tried: list[tuple[Recipe, float]]
    plain: float
    images: int
    batches: list[Batch]
    shelf: Shelf
    costs: dict[str, float]
    widened: dict[str, float]
    beyond: dict[str, str]
    seconds: float
    observing: float
    how: dict[str, Any]

    @property
    def cost(self) -> float:
        """Return the cost by which the recipe was chosen; ``built.cost`` is measured on the images it was fitted on."""
        return dict(self.tried)[self.built.recipe]


@function_of(Request, UsageError)
def quantize(request: Request) -> Result:
    """Write a prototxt whose layers have formats for an overlay, and the weights that belong to it; for ONNX, formats alone.

    ``inputs``   calibration batches, float32 (N, C, H, W) or {blob: array}, already preprocessed; consumed one by one.
                 Recipes are judged on the first 64 images; ranges use all
    ``output``   the .prototxt to write; the .caffemodel is written next to it. For an ONNX file a .formats.json, which is
                 given with it: ``Net("net.onnx", "net.formats.json")``. Weights and biases are kept then
    ``bits``     8 or 6, or three widths, used unchanged: of the network's inputs, weights and other blobs. With a
                 single 6, inputs, the first layer and blobs that no multiplier reads keep 8. "mixed" is 6, with 8 for
                 the layers that are worth it
    ``budget``   share of the multiply-accumulates that "mixed" may give 8 bits, 0 to 1
    ``judge``    "outputs": a network is judged by the error of its outputs, of a detector by that of what its boxes are made
                 from; "boxes": by the boxes that it gives, compared with float's
    ``scheme``   "Xilinx" or "DynamicFixed" (default: the overlay's first scheme)
    ``views``    batches like ``inputs`` on which ranges are chosen instead, see images.resized.views; recipes are judged
                 and weights are fitted on ``inputs``
    ``effort``   "fast" (formats only), "normal" (also changes weights), "best" (tries more)
    ``wider``    {layer: 8 or 6}: width of that layer's weights and input
    ``chaidnn``  write only what CHaiDNN itself reads: signed codes alone, and 8 bits for class scores from average pools,
                 which are float32 otherwise; with sums and results that its registers hold on these inputs
    ``recipe``   use this recipe instead of a search
    ``journal``  file that stores the costs of recipes: the same call resumes after an interruption; ``restart``
                 discards it
    ``watch``    called with the current activity and the share of the work that is done
    ``overlay``, ``custom``, ``batch``, ``phase``, ``level``, ``stages``, ``shapes``, ``strict``, ``jit``   as of Net

    Raises what Net raises; UsageError without any input, for an unknown layer or a scheme that the overlay lacks;
    ParseError for a prototxt in Caffe's oldest form (V0).
    """
    started = monotonic()
    with Net(request.prototxt, request.caffemodel, "emulator", scheme=request.scheme, **request.reading) as net:
        if not request.onnx:
            check_form(net.graph.path)
        return _quantized(net, request, started)


def _quantized(net: Net, request: Request, started: float) -> Result:
    """Search the recipe of a loaded network, write its files, and return the Result."""
    graph, observed = _observed(net, request)
    observing = monotonic() - started
    progress = _Progress(request.watch, request.recipe, request.searched, len(graph.layers))
    output = Path(request.output)
    # from here on batches run side by side, and products are small: threads of BLAS would only wait for each other
    with threadpool_limits(1, "blas"):
        builder, widened = _builder(request, net, graph, observed, progress)
        choices = {name: getattr(request, name) for name in ("bits", "seed", "chaidnn", "judge")}
        choices |= {"scheme": builder.scheme, "wider": {**builder.codes.wider}, "overlay": builder.overlay.digest}
        run = run_of(*locate(request.prototxt, request.caffemodel), observed, choices)
        with closing(Known(request.journal, run, request.restart, sum(observed.sizes))) as known:
            kept, tried, plain = _search(builder, request.recipe, request.searched, progress, known)
        candidate = _built(builder, kept, plain, progress)
        costs = alone.of_layers(builder, candidate) if request.effort != "fast" else {}
        note = f"{spelled(request.bits)}-bit {builder.scheme}, {candidate.recipe}"
        note += f", {number_of(observed.images, 'image')}, seed {request.seed}"
        if request.onnx:
            save_formats(output, files_of(request.prototxt), candidate.graph, note)
            files = Path(request.prototxt), output
        else:
            files = output, save(output, net.graph, candidate.graph, note, request.chaidnn or builder.held)
        signed = not any(format.unsigned for format in candidate.formats.values())  # else CHaiDNN cannot read it
        emulation = Emulation(candidate.graph, candidate.formats, builder.overlay, builder.placed)
        far = registers.beyond(emulation, observed.batches) if signed else {}
    how = {name: getattr(request, name) for name in ("bits", "effort", "seed", "judge")}
    return Result(
        prototxt=files[0],
        caffemodel=files[1],
        built=candidate,
        tried=tried,
        plain=plain,
        images=observed.images,
        batches=observed.batches,
        shelf=observed.shelf,
        costs=costs,
        widened=widened,
        beyond=far,
        seconds=monotonic() - started,
        observing=observing,
        how={**how, "budget": request.budget if request.bits == "mixed" else None, "scheme": builder.scheme},
    )


def _observed(net: Net, request: Request) -> tuple[Graph, Observed]:
    """Return the graph after the passes, and what its blobs are on the calibration images. Raises UsageError without any."""
    batches = batches_of((_named(net, b) for b in request.inputs), request.limit)
    first = next(batches, None)
    if first is None:
        raise UsageError("quantize: there is no calibration image")
    net.reshape(**{blob: array.shape for blob, array in first.items()})
    assert net.overlay is not None
    graph = rewrite(net.graph, arithmetic(net.overlay))
    request.watch("float pass", 0.0)
    observed = observe(graph, chain((first,), batches), request.seed, boxes=request.judge == BOXES)
    if observed.boxes and not any((rows[..., 1] >= 0).any() for wanted in observed.wanted for rows in wanted.values()):
        message = f"judge boxes: {net.name} finds no box in float on the calibration images"
        raise UsageError(message, hint="other images, or a lower threshold in [detect] or detection_output_param")
    if request.views is None:
        return graph, observed
    views = observe(graph, (_named(net, b) for b in request.views), request.seed, 0, VIEWS * READ_IMAGES)
    return graph, replace(observed, seen=views.seen, in_front=views.in_front)  # all that chooses formats


def _builder(
    request: Request, net: Net, graph: Graph, observed: Observed, progress: _Progress
) -> tuple[RecipeBuilder, dict[str, float]]:
    """Return the builder for the widths, and the layers to which mixed widths give 8 bits, with their shares."""
    target, where = net.overlay, net.partition
    assert target is not None
    placed = {layer.name for layer in graph.layers if not layer.source and where.engine(layer.name) == "fpga"}
    single = set() if request.chaidnn else scores(graph, placed)

    def builder_of(bits: Bits, wider: Mapping[str, int]) -> RecipeBuilder:
        codes = Codes(target, target.scheme(request.scheme), bits, wider, request.chaidnn)
        return RecipeBuilder(
            graph, net.graph, observed, codes, placed, single, request.seed, progress.tick, request.onnx
        )

    wider = dict(request.wider or {})
    builder = builder_of(6 if request.bits == "mixed" else request.bits, wider)
    builder.check_widths()
    if request.bits != "mixed":
        return builder, {}
    request.watch("widths", 0.0)
    widened = alone.widened(builder, builder_of(8, {}), request.budget, wider.keys())
    return builder_of(6, {**wider, **dict.fromkeys(widened, 8)}), widened


def _named(net: Net, batch: Any) -> Batch:
    feeds = batch if isinstance(batch, Mapping) else {net.inputs[0]: batch}
    return {blob: np.asarray(array, np.float32, order="C") for blob, array in feeds.items()}


def _search(
    builder: RecipeBuilder, only: Recipe | None, stages: Sequence[SearchStage], progress: _Progress, journal: Known
) -> tuple[list[Built], list[tuple[Recipe, float]], float]:
    """Return the best networks in the order found, every recipe tried with its cost, and the cost of plain maxima.

    Networks that were only judged, or whose costs came from the journal, were not built: they have no formats.
    """
    tried: dict[Recipe, float] = {}

    def attempt(recipe: Recipe) -> Built:
        progress.begin(str(recipe))
        costs = journal.costs.get(recipe)
        if costs is None:
            built = builder.judged(recipe)
            journal.add(built)
        else:
            built = Built(recipe, builder.graph, {}, *costs)
        tried[recipe] = built.cost
        log.info("%s: cost %.6g", recipe, built.cost)
        return built

    kept = [attempt(PLAIN)]
    if only is not None:
        kept = [attempt(only)] if only != PLAIN else kept
        return kept, list(tried.items()), tried[PLAIN]
    for stage in stages:
        base = kept[-1].recipe
        for recipe in changed(base, stage):
            if recipe not in tried:
                built = attempt(recipe)
                if built.beats(kept[-1], stage.evidence):
                    kept.append(built)
    return kept, list(tried.items()), tried[PLAIN]


def _built(builder: RecipeBuilder, kept: list[Built], plain: float, progress: _Progress) -> Built:
    """Return the last network that costs no more than plain maxima, neither judged nor once it is fitted on all images.

    The first one, plain maxima or the only recipe, is returned if there is no other.
    """
    for built in [judged for judged in reversed(kept) if judged.cost <= plain or judged is kept[0]]:
        if not built.formats:  # it was only judged
            progress.begin(str(built.recipe))
            built = builder.build(built.recipe)
        if built.cost <= plain:
            break
        log.info("%s: cost %.6g when fitted on all images, more than plain maxima", built.recipe, built.cost)
    return built


class _Progress:
    """Progress in layers run: plain maxima, every recipe (twice if cross-validated), and the last build."""

    def __init__(
        self, watch: Callable[[str, float], None], only: Recipe | None, stages: Sequence[SearchStage], layers: int
    ) -> None:
        networks = 2 if only is None else 4
        fitted = False
        for stage in stages if only is None else ():
            fitted = fitted or stage is TOGETHER  # recipes of later stages are fitted too
            networks += len(stage.changes) * (2 if fitted else 1)
        self.watch = watch
        self.total = networks * layers
        self.done = 0
        self.what = ""

    def begin(self, what: str) -> None:
        self.what = what

    def tick(self) -> None:
        self.done += 1
        self.watch(self.what, min(0.99, self.done / self.total))
