"""Synchronise threads that share a Net: passes use it, calibrate and reshape change it, close releases it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any, NoReturn, TypeVar

from ..errors import UsageError
from ..graph import Graph
from ..util.sharing import Lifetime, Turn, inside

Network = TypeVar("Network", bound="Shared")
T = TypeVar("T")


class Shared:
    """A network that several threads may use.

    ``_state`` guards sizes, formats and schedules. Lock order: ``_state``, then a layer's turn. Neither is held while
    the caller of ``stream`` has control. A layer that runs another network takes that one's after its own turn: what would
    wait in a circle is refused (``Turn``).
    """

    def __init__(self) -> None:
        self._state = Turn()
        self._lifetime: Lifetime = Lifetime(self._release)

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def graph(self) -> Graph:
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Release blobs, weights and device memory; and the device itself if this was its last network.

        Running passes and streams keep their resources until they end.
        """
        self._lifetime.close()

    def _check_open(self) -> None:
        if self._lifetime.closed:
            raise UsageError(f"{self.name} is closed", hint="ask before close(), or before its with block ends")

    def _using(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what ``call`` returns, and keep the resources of a pass meanwhile. The network may be closed before.

        What a pass sets for itself in a context, as numpy's errstate, ends with it, even if an exception of a signal handler
        keeps ``__exit__`` from running.
        """
        self._check_outside()
        context = copy_context()
        result: T = self._lifetime.run(context.run, call, *arguments)
        return result

    def _streaming(self, results: Iterator[T]) -> Iterator[T]:
        """Return what yields ``results``, and keep the resources of a pass until it ends or is closed."""
        self._check_outside()
        return self._lifetime.stream(results)

    def _changing(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what ``call`` returns, while no other thread uses or changes sizes, formats and schedules."""
        self._check_outside()
        return self._state.run(call, *arguments)

    def _check_outside(self) -> None:
        """Raise UsageError if called from a layer of this network, which would deadlock."""
        held = inside()
        layer = next((x for x in self.graph.layers if x.turn in held), None) if held else None
        if layer is not None and layer.turn.shared:
            raise UsageError(
                f"{layer.turn.shared} asks network {self.name} to run or to change, whose layer {layer.name!r} is another: "
                "these run one at a time",
                hint="a custom layer of chai may run other networks",
            )
        if layer is not None:
            raise UsageError(
                f"layer {layer.name!r} asks its own network, {self.name}, to run or to change while it is running",
                hint="load a second chai.Net for that",
            )

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"{self.name}: a network cannot be pickled or copied",
            hint="hand over the paths of its files, and open them with chai.Net there",
        )

    def __enter__(self: Network) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
