"""Measure the cost of layers alone, everything else in float, and choose by it which layers get 8 bits."""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet

from ..graph import Graph, Layer
from ..util.lazy_numpy import np
from .build import SOFT, Built, RecipeBuilder
from .observe import batches_of
from .recipe import START, Recipe
from .walk import BatchState, Emulation, shapes_of

REPORTED = 2  # images by which the report names the layers that cost most
COMPARED = 8  # images by which widths are chosen


def of_layers(builder: RecipeBuilder, built: Built) -> dict[str, float]:
    """Return by layer the cost on a few images if only that layer ran on the overlay."""
    exact, _, _ = builder.equalised(built.recipe.equalise)
    parts = {name: Emulation(built.graph, built.formats, builder.overlay, {name}) for name in builder.placed}
    return costs(builder, exact, parts, REPORTED, (1.0,))


def widened(narrow: RecipeBuilder, wide: RecipeBuilder, budget: float, fixed: AbstractSet[str]) -> dict[str, float]:
    """Return the convolutions that are worth 8 bits in a network of 6, with their shares of the multiply-accumulates.

    Keys are names in the prototxt; shares are of all convolutions on the overlay. The convolutions that read one blob are
    widened together, since it has one format. Those with the highest cost in 6 bits per multiply-accumulate come first, as
    long as the sum of shares stays within ``budget``. ``narrow`` and ``wide`` build the network in 6 and 8 bits; the widths
    of the layers ``fixed`` were chosen by the user.
    """
    graph, of = narrow.graph, narrow.groups.of
    readers: dict[str, list[Layer]] = {}
    for layer in graph.layers:
        if layer.name in narrow.groups.weights:
            readers.setdefault(of[layer.bottoms[0]], []).append(layer)
    share = shares(narrow)
    size = {group: sum(share[layer.name] for layer in layers) for group, layers in readers.items()}
    recipe = Recipe(**START.changes[0])
    quantised, formats, _ = narrow.formatted(recipe)
    _, finer, _ = wide.formatted(recipe)
    parts: dict[str, Emulation] = {}
    for group, layers in readers.items():
        if all(narrow.groups.weights[x.name] == 6 and fixed.isdisjoint(x.origin) for x in layers):
            mixed = {blob: formats[blob] if of.get(blob) == group else f for blob, f in finer.items()}
            parts[group] = Emulation(quantised, mixed, narrow.overlay, [layer.name for layer in layers])
    alone = costs(narrow, graph, parts, COMPARED, (1.0, SOFT))
    left = budget
    chosen: dict[str, float] = {}
    for group in sorted(alone, key=lambda group: -alone[group] / size[group]):
        if alone[group] > 0 and size[group] <= left:
            left -= size[group]
            for layer in readers[group]:
                name = layer.origin[0]
                chosen[name] = chosen.get(name, 0.0) + share[layer.name]
    return chosen


def shares(builder: RecipeBuilder) -> dict[str, float]:
    """Return each convolution's share of the multiply-accumulates of all those on the overlay."""
    sizes = {}
    for layer in builder.graph.layers:
        if layer.name in builder.groups.weights:
            bottoms, tops = (tuple(builder.shapes[b] for b in side) for side in (layer.bottoms, layer.tops))
            sizes[layer.name] = layer.macs(bottoms, tops)
    return {name: size / sum(sizes.values()) for name, size in sizes.items()}


def costs(
    builder: RecipeBuilder,
    exact: Graph,
    parts: Mapping[str, Emulation],
    images: int,
    temperatures: tuple[float, ...],
) -> dict[str, float]:
    """Return the cost of each part on the first images if only its layers ran on the overlay, summed over temperatures.

    Parts emulate the network with quantised weights; ``exact`` has those in float.
    """
    observed = builder.observed
    batches = batches_of(observed.batches, images)
    in_float = Emulation(exact, {}, builder.overlay, ())
    states = [in_float.state(shapes_of(exact, feeds), feeds) for feeds in batches]
    ends = [[b for b in last if b not in observed.measured] for last in exact.last_readers]
    computed = [i for i, layer in enumerate(exact.layers) if not layer.source]
    results: dict[str, list[BatchState]] = {}
    for i in computed:
        for name, part in parts.items():
            if name in results or exact.layers[i].name not in part.placed:
                continue
            results[name] = [part.state(state.shapes, state.host) for state in states]
            for j in computed[computed.index(i) :]:
                layer = exact.layers[j]
                part.step(part.graph.layers[j] if layer.name in part.placed else layer, results[name])
                for state in results[name]:
                    state.drop(ends[j])
        in_float.step(exact.layers[i], states)
        for state in states:
            state.drop(ends[i])
    wanted = [{blob: state.value(blob) for blob in observed.measured} for state in states]
    costs = {}
    for name, branches in results.items():
        judged = (builder.judge(branches, wanted, temperature) for temperature in temperatures)
        costs[name] = sum(float(np.concatenate(each).mean()) for each in judged)
    return costs
