"""Build a quantised network from a recipe: its formats, its weights, and the error of its outputs against float."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from ..blob import Array
from ..errors import UsageError
from ..fixed import SINGLE, Coarser, Format, blocks, quantize_weights, weight_steps
from ..graph import Graph, Layer
from ..kernels.codes import pack, unpack
from ..offload.formats import from_precision, unsigned_blobs
from ..tasks.arithmetic import arithmetic
from ..tasks.precision import Precision
from ..util.lazy_numpy import np
from ..util.suggest import did_you_mean
from . import equalise, registers, weights
from .boxes import BoxCounts, counted, disagreement
from .groups import Codes, Groups, coarsened, fitting, groups, precision
from .observe import Observed, cost, equalised, folded, patches, places
from .ranges import best, candidates, fit
from .recipe import AFTER, Recipe
from .walk import BatchState, Emulation, shapes_of
from .writeback import bias_owner, folded_in

# Second temperature at which networks are compared. Most images are classified so confidently that their KL at T = 1 hardly
# reacts to errors. T = 2 makes every image count, but alone it overweights unlikely classes: the two costs are added.
SOFT = 2.0


@dataclass
class Built:
    """A quantised network. ``graph`` has new weights, and a precision_param on every layer that needs one.

    ``formats``   empty if the recipe was only judged
    ``costs``     ``observe.cost`` summed over the measured blobs, one number per image; for a ``judged`` recipe, from a
                  network that was not fitted on that image
    ``softened``  ``costs`` plus the costs at temperature SOFT: networks are compared by these
    ``factors``   divisors (C,) of each equalised blob's channels
    ``refused``   reason by layer, for layers that run on the host because their numbers do not fit
    ``chosen``    method by which each blob's format was chosen
    ``coarser``   layers whose weights have coarser steps so that their sums fit the accumulator
    ``boxes``     how many boxes are float's, if they are the judge
    """

    recipe: Recipe
    graph: Graph
    formats: Mapping[str, Format]
    costs: Array
    softened: Array
    factors: dict[str, Array] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    coarser: dict[str, Coarser] = field(default_factory=dict)
    boxes: BoxCounts | None = None

    @property
    def cost(self) -> float:
        """Return the mean cost over images."""
        return float(self.costs.mean())

    def beats(self, other: Built, evidence: float) -> bool:
        """Return whether this costs less than ``other``, by ``evidence`` standard errors of the difference.

        A negative number allows it to cost more by as much.
        """
        gain = other.softened - self.softened
        least = evidence * gain.std(ddof=min(1, len(gain) - 1)) / np.sqrt(len(gain))
        return bool(gain.mean() >= least and (gain.mean() > 0 or evidence < 0))


class RecipeBuilder:
    """Builds and judges recipes for one network.

    ``graph``    the rewritten graph; its layers are never changed
    ``original`` the graph of the prototxt
    ``placed``   layers that run on the overlay, except those in ``single``, whose precision_param sends them to the host
    ``kept``     whether weights are those of the file: only formats are chosen
    """

    def __init__(
        self,
        graph: Graph,
        original: Graph,
        observed: Observed,
        codes: Codes,
        placed: Collection[str],
        single: Collection[str] = (),
        seed: int = 0,
        tick: Callable[[], None] = lambda: None,
        kept: bool = False,
    ) -> None:
        self.graph, self.original, self.observed = graph, original, observed
        self.codes, self.overlay, self.scheme = codes, codes.overlay, codes.scheme
        self.single = set(single)
        self.placed = set(placed) - self.single
        self.seed, self.tick, self.kept = seed, tick, kept
        on_host = {layer.name for layer in graph.layers} - self.placed
        self.unsigned = frozenset[str]() if codes.signed else unsigned_blobs(graph, codes.overlay, on_host)
        self.arithmetic = arithmetic(codes.overlay)
        self.held = codes.signed or registers.ends(self.arithmetic)
        rescales_nothing = partial(self.arithmetic.one_format, scheme=codes.scheme)
        self.groups: Groups = groups(graph, self.placed, codes.bits, codes.wider, self.unsigned, rescales_nothing)
        self.whole: RecipeBuilder | None = None  # the builder that this is a fold of
        self.shapes = shapes_of(graph, observed.batches[0])
        self._equalised: dict[float, tuple[Graph, Observed, dict[str, Array]]] = {0.0: (graph, observed, {})}
        self._after_fits: dict[tuple[int, str], Format] = {}
        self._thresholds: dict[tuple[float, str, str], Format | Array] = {}
        self._fitted: dict[tuple[float, str], tuple[dict[str, Format], dict[str, str]]] = {}
        self.folded = {
            layer.name for layer in graph.layers if layer.name in self.groups.weights and folded_in(original, layer)
        }

    def check_widths(self) -> None:
        """Raise UsageError for a layer whose width cannot be chosen."""
        names = {name for x in self.graph.layers if x.name in self.groups.weights for name in x.origin}
        for name in self.codes.wider:
            if name not in names:
                message = f"there is no convolution or InnerProduct {name!r} on the overlay whose width could be chosen"
                raise UsageError(message, hint=did_you_mean(name, names))

    def judged(self, recipe: Recipe) -> Built:
        """Return the cost of a recipe, without the network that it builds.

        A recipe that fits weights or biases looks better on the images it was fitted on than on others, so it is
        cross-validated: fitted on every other batch and judged on the rest, then with the halves exchanged. With a
        single batch this is not possible.
        """
        if not (recipe.fits or recipe.equalise) or not self.folds:
            return self.build(recipe)
        costs: dict[int, tuple[Array, Array]] = {}
        for fold in self.folds:
            _, *by_batch = fold._built(recipe)
            costs.update(zip(fold.observed.numbers[fold.observed.fitted :], zip(*by_batch)))
        plain, soft = (np.concatenate(each) for each in zip(*(costs[number] for number in sorted(costs))))
        return Built(recipe, self.graph, {}, plain, plain + soft)

    @cached_property
    def folds(self) -> list[RecipeBuilder]:
        """Return the builders of the cross-validation halves, created on first use so that they share what is cached by then."""
        return [self._fold(half) for half in folded(self.observed)]

    def _fold(self, observed: Observed) -> RecipeBuilder:
        fold = copy(self)
        fold.observed, fold.folds, fold.whole = observed, [], self
        fold._equalised, fold._fitted = {0.0: (self.graph, observed, {})}, {}
        fold._thresholds = {key: cached for key, cached in self._thresholds.items() if not key[0]}
        return fold

    def build(self, recipe: Recipe) -> Built:
        """Build a recipe's network and judge it on the kept calibration images."""
        return self._built(recipe)[0]

    def _built(self, recipe: Recipe) -> tuple[Built, list[Array], list[Array]]:
        """Return the network, its costs per batch, and its costs per batch at temperature SOFT."""
        graph, formats, chosen = self.formatted(recipe)
        _, observed, factors = self.equalised(recipe.equalise)
        coarser = {}
        for layer, bits in ((x, self.groups.weights[x.name]) for x in graph.layers if x.name in self.groups.weights):
            source = formats[layer.bottoms[0]]
            coarser[layer.name] = coarsened(layer, self.own_steps(layer, source, recipe), source, bits, self.overlay)
        emulation = Emulation(graph, formats, self.overlay, self.placed)
        prepare = partial(self._prepare, recipe, formats)
        states = emulation.run(observed.batches, observed.measured, prepare, observed.shelf)
        judging = slice(observed.fitted if observed.held else 0, None)
        reference, states = observed.wanted[judging], states[judging]
        by_batch, soft_by_batch = self.judge(states, reference), self.judge(states, reference, SOFT)
        costs, soft = np.concatenate(by_batch), np.concatenate(soft_by_batch)
        built = Built(recipe, graph, formats, costs, costs + soft, factors, emulation.refused, chosen)
        if observed.boxes:
            built.boxes = counted((w[b], s.value(b), s.images) for w, s in zip(reference, states) for b in w)
        built.coarser = {name: steps for name, steps in coarser.items() if steps and name not in emulation.refused}
        return built, by_batch, soft_by_batch

    def formatted(self, recipe: Recipe) -> tuple[Graph, dict[str, Format], dict[str, str]]:
        """Return the network with a precision_param on every layer that needs one, not yet fitted.

        The other results are the formats of its blobs and the method that chose each.
        """
        graph, observed, _ = self.equalised(recipe.equalise)
        graph = replace(graph, layers=[copy(layer) for layer in graph.layers])
        formats, chosen = self._formats(recipe, graph, observed)
        for layer in graph.layers:
            layer.precision = self._precision(graph, layer, formats, recipe)
        return graph, from_precision(graph, self.unsigned), chosen

    def judge(
        self, states: list[BatchState], reference: list[dict[str, Array]], temperature: float = 1.0
    ) -> list[Array]:
        """Return the cost of each image (N,), batch by batch."""
        costs = []
        for w, s in zip(reference, states):
            pairs = {b: (w[b], s.value(b)) for b in self.observed.measured}
            if self.observed.boxes:
                each = [disagreement(*pair, s.images) for pair in pairs.values()]
            else:
                each = [cost(self.graph, b, *pair, temperature) for b, pair in pairs.items()]
            images = max(map(len, each))  # a blob whose first axis is not the image counts for all alike
            costs.append(np.sum([c if len(c) == images else np.full(images, c.mean()) for c in each], axis=0))
        return costs

    def equalised(self, share: float) -> tuple[Graph, Observed, dict[str, Array]]:
        """Return the network equalised by this share, what would be observed in it, and the factors."""
        if share not in self._equalised:
            r = equalise.factors(self.graph, self.observed.largest, self.shapes, share, self.placed)
            graph = replace(self.graph, layers=[copy(layer) for layer in self.graph.layers])
            equalise.apply(graph, r)
            self._equalised[share] = graph, equalised(self.graph, self.observed, r), r
        return self._equalised[share]

    # -- formats of blobs

    def _formats(self, recipe: Recipe, graph: Graph, observed: Observed) -> tuple[dict[str, Format], dict[str, str]]:
        if self.whole is not None and not recipe.equalise:
            return self.whole._formats(recipe, graph, self.whole.observed)  # ranges come from all images
        key = recipe.equalise, recipe.ranges
        if key not in self._fitted:
            formats: dict[str, Format] = {}
            chosen: dict[str, str] = {}
            for group in dict.fromkeys(self.groups.of.values()):
                formats[group], chosen[group] = self._fit(group, recipe.ranges, graph, observed)
            for layer in graph.layers:
                if layer.name in self.single:  # its top is float32; the format is only a placeholder
                    formats[self.groups.of[layer.tops[0]]] = formats[self.groups.of[layer.bottoms[0]]]
                # a concat on the host has the format of its coarsest branch
                if layer.merges_formats and layer.name not in self.placed:
                    group = self.groups.of[layer.tops[0]]
                    formats[group] = max((formats[self.groups.of[b]] for b in layer.bottoms), key=lambda f: f.step)
            blobs = self.groups.of
            if self.held:
                results = [(blobs[x.tops[0]], observed.results.get(x.name)) for x in graph.layers if x.convolution]
                formats = registers.widest(formats, results)
            folded = {blobs[layer.tops[0]] for layer in graph.layers if layer.name in self.folded}
            formats = {group: self.arithmetic.stated(format, group in folded) for group, format in formats.items()}
            self._fitted[key] = {b: formats[g] for b, g in blobs.items()}, {b: chosen[g] for b, g in blobs.items()}
        return self._fitted[key]

    def _fit(self, group: str, method: str, graph: Graph, observed: Observed) -> tuple[Format, str]:
        bits, unsigned = self.groups.bits[group], group in self.groups.unsigned
        members = [b for b, g in self.groups.of.items() if g == group]
        blobs = self.groups.read.get(group, members)
        readers = self._readers(graph, group)
        looks = method == AFTER or (method != "max" and any(reader.error_sensitive for reader in readers))
        if looks and readers and all(x.name in observed.in_front for x in readers):
            key = id(observed), group  # observed values do not depend on the recipe
            if key not in self._after_fits:
                largest = max(map(observed.greatest, blobs))
                self._after_fits[key] = self._after(readers, observed, candidates(largest, bits, self.scheme, unsigned))
            return self._after_fits[key], f"error after {readers[0].type}"
        method = "mse" if method == AFTER else method
        return fit(observed.histogram(blobs), method, bits, self.scheme, unsigned), method

    def _readers(self, graph: Graph, group: str) -> list[Layer]:
        """Return the layers that compute with a group's blobs; none if the group holds an output."""
        blobs = set(self.groups.read.get(group, ()))
        if not blobs.isdisjoint(graph.output_blobs):
            return []
        return [x for x in graph.layers if not x.same_values and not blobs.isdisjoint(x.bottoms)]

    def _after(self, layers: list[Layer], observed: Observed, formats: list[Format]) -> Format:
        """Return the format of a blob with the least squared error at the outputs of ``layers``.

        The errors are relative to the energy of each output.
        """
        inputs = []
        for layer in layers:
            run = partial(_at_rows, layer) if layer.weighted else lambda x, layer=layer: layer.forward(x)[0]
            pairs = [(x, run(x)) for x in observed.in_front[layer.name]]
            energy = sum(float((y * y).sum(dtype=np.float64)) for _, y in pairs)
            inputs += [(run, x, y, energy or 1.0) for x, y in pairs]

        def error(f: Format) -> float:
            differences = ((run(unpack(pack(x, f), f)) - y, energy) for run, x, y, energy in inputs)
            return sum(float((wrong * wrong).sum(dtype=np.float64)) / energy for wrong, energy in differences)

        def errors(formats: list[Format]) -> Array:
            return np.array([error(f) for f in formats])

        middle = 3 * int(np.argmin(errors(formats[::3])))  # running a layer is slow: coarse steps first
        format = best(formats[max(0, middle - 2) : middle + 3], errors)
        observed.shelf.rest()
        return format

    # -- precision_param of layers

    def _precision(self, graph: Graph, layer: Layer, formats: Mapping[str, Format], recipe: Recipe) -> Precision | None:
        if layer.source or not layer.bottoms or not layer.tops or layer.merges_formats:
            return None
        if layer.name in self.single:
            return Precision(SINGLE)
        bits = self.groups.weights.get(layer.name)
        return precision(graph, layer, formats, bits, self._weights(layer, recipe, bits) if bits else None)

    def _weights(self, layer: Layer, recipe: Recipe, bits: int) -> Format | Array | None:
        if layer.name in self.folded:
            return None  # a precision_param describes the weights of the file, not the folded ones
        key = recipe.equalise, recipe.weights, layer.name
        if key not in self._thresholds:
            choose = weights.one_fraction if self.scheme == "DynamicFixed" else weights.thresholds
            self._thresholds[key] = choose(layer.weight_rows, recipe.weights, bits)
        return self._thresholds[key]

    def own_steps(self, layer: Layer, source: Format, recipe: Recipe) -> Array:
        """Return the step of each output channel's weights, as its precision_param and the weights have it."""
        p = layer.precision
        assert p is not None
        bits = self.groups.weights[layer.name]
        method = "max" if self.kept else recipe.weights  # of folded weights, whose steps no precision_param has
        rows, own = layer.weight_rows, p.fl_params
        if p.quant_type == "DynamicFixed":
            format = weights.one_fraction(rows, method, bits) if own is None else Format(p.quant_type, bits, own)
            return weight_steps(rows, format, None, source.step)
        thresholds = np.array(p.th_params, np.float32) if p.th_params else weights.thresholds(rows, method, bits)
        return weight_steps(rows, Format(p.quant_type, bits, 0.0), thresholds, source.step)

    # -- weights and biases

    def _prepare(self, recipe: Recipe, formats: Mapping[str, Format], layer: Layer, states: list[BatchState]) -> None:
        """Round a layer's weights and tune its bias on the codes of its input, before it runs.

        If the network is for CHaiDNN's registers, the layer first gets weights whose sums these hold.
        """
        self.tick()
        bits = self.groups.weights.get(layer.name)
        if bits is None:
            return
        if self.held:
            registers.hold(layer, formats, states)
        folded = layer.name in self.folded
        if not (recipe.fits or (folded and recipe.weights != "max" and not self.kept)):
            return
        source = formats[layer.bottoms[0]]
        observed = self.equalised(recipe.equalise)[1]
        rows = self._rows(layer, observed, source, states)
        values = layer.weight_rows
        group, m = len(rows), len(values)
        steps = self.own_steps(layer, source, recipe)
        steps = fitting(layer, steps, source, bits, self.overlay).steps  # as lowering computes them
        high = (1 << (bits - 1)) - 1
        grouped = values.reshape(group, m // group, -1), steps.reshape(group, -1, 1)
        if recipe.rounding == "nearest" or not len(rows[0]):
            codes = quantize_weights(values, steps, bits).reshape(grouped[0].shape)
        elif values[0].size > weights.LONGEST:
            codes = weights.by_parts(*grouped, rows, high)
        else:
            codes = weights.together(weights.in_steps(*grouped), weights.moments(rows), high, recipe.rounding)
        if folded:
            codes = self._pinned(codes.astype(np.float64), weights.in_steps(*grouped), high)
        rounded = np.empty((m, values[0].size), np.float32)
        for part in blocks(*rounded.shape):
            rounded[part] = codes.reshape(rounded.shape)[part] * steps[part, None]
        layer.blobs = layer.with_rows(rounded.reshape(values.shape))
        movable = layer.params.bias_term and bias_owner(self.original, layer) is not None
        if recipe.bias != "kept" and movable:
            sums = weights.product(rows, codes.astype(np.float32).transpose(0, 2, 1))  # (group, R, M / group)
            quantised = sums.transpose(1, 0, 2).reshape(len(rows[0]), m) * (steps * source.step) + layer.blobs[1]
            exact = np.concatenate(observed.rows[layer.name])  # of the fitting batches, like ``rows``
            rule = formats[layer.tops[0]], layer.slope, recipe.bias
            moved = weights.bias_correction(exact, quantised.astype(np.float32), *rule)
            layer.blobs = [layer.blobs[0], (layer.blobs[1] + moved).astype(np.float32)]

    def _rows(self, layer: Layer, observed: Observed, source: Format, states: list[BatchState]) -> Array:
        """Return the codes (group, R, K), without their zero points, that a layer reads at the places that were observed."""
        bottom, parts = layer.bottoms[0], []
        convolved = layer.convolved(states[0].device_shapes[bottom])
        assert convolved
        window, group = convolved
        for number, state in zip(observed.numbers, states[: observed.fitted]):
            codes = state.code(bottom)
            size = window.sizes(codes.shape[2:])
            at = places(layer, size, len(codes), number, self.seed)
            parts.append(patches(codes.astype(np.int16) - source.zero, window, group, size, at))
        return np.concatenate(parts, 1)

    def _pinned(self, codes: Array, scaled: Array, high: int) -> Array:
        """Give every channel a code of +-high: the loader derives the step of folded weights from the largest."""
        at = np.abs(scaled).argmax(2)[..., None]
        largest = np.take_along_axis(scaled, at, 2)
        needed, over = (high, 2) if self.scheme == "Xilinx" else ((high + 1) // 2 + 1, (0, 1, 2))
        short = (np.abs(codes).max(over, keepdims=True) < needed) & (largest != 0)
        pinned = np.where(short, np.copysign(needed, largest), np.take_along_axis(codes, at, 2))
        np.put_along_axis(codes, at, pinned, 2)
        return codes


def _at_rows(layer: Layer, rows: Array) -> Array:
    """Return a layer's output rows (group, R, M / group) for im2col rows (group, R, K)."""
    group = len(rows)
    columns = layer.weight_rows.reshape(group, len(layer.weight_rows) // group, -1).transpose(0, 2, 1)
    offset = layer.blobs[1].reshape(group, 1, -1) if layer.params.bias_term else np.float32(0)
    return weights.activated(weights.product(rows, columns) + offset, layer.slope)
