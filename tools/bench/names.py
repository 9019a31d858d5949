"""Names for the parts of a file that another engine reads: those of the network, and of what a writer adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable


class Names:
    """Names of which no two are equal. Those of the network come first, so that they stay what they are if they can.

    ``spelt`` returns a name without what the file's format does not allow.
    """

    def __init__(self, network: Iterable[str] = (), spelt: Callable[[str], str] = str) -> None:
        self._spelt = spelt
        self._used: set[str] = set()
        self._repeats: Counter[str] = Counter()
        self._network = {name: self.new(name) for name in dict.fromkeys(network)}

    def __getitem__(self, name: str) -> str:
        """Return the file's name for a name of the network."""
        return self._network[name]

    def new(self, *words: object) -> str:
        """Return a name that begins with these words, and that nothing has yet."""
        base = name = self._spelt("/".join(map(str, words)))
        while name in self._used:
            self._repeats[base] += 1
            name = f"{base}_{self._repeats[base]}"
        self._used.add(name)
        return name
