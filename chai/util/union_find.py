"""Union-find: disjoint groups of names."""

from __future__ import annotations


class UnionFind:
    """Disjoint groups, each represented by one of its names. A name that was never joined is a separate group."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        """Return the representative of the group of ``name``."""
        while self._parent.get(name, name) != name:
            name = self._parent[name]
        return name

    def join(self, name: str, other: str) -> None:
        """Merge the group of ``name`` into that of ``other``, whose representative is kept."""
        self._parent[self.root(name)] = self.root(other)
