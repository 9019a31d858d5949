"""Union-find: which of some names are tied together."""

from __future__ import annotations


class UnionFind:
    """Groups of names, each group called by one of them. A name that was never joined is a group of its own."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        """Return the name of the group that ``name`` is in."""
        while self._parent.get(name, name) != name:
            name = self._parent[name]
        return name

    def join(self, name: str, other: str) -> None:
        """Tie the group of ``name`` to that of ``other``, which names both from now on."""
        self._parent[self.root(name)] = self.root(other)
