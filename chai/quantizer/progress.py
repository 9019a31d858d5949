"""Record of recipe costs, from which an interrupted search resumes.

Only the costs are slow to compute, so only they are stored. The best network is rebuilt from its recipe at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import chai

from ..blob import Array
from ..errors import ParseError, UsageError
from ..util.data.dataclass_io import restore
from ..util.data.journal import Journal
from ..util.files import digest
from ..util.lazy_numpy import np
from ..zoo.locate import files_of
from .build import Built
from .observe import Observed
from .recipe import Recipe


class Known:
    """The costs of recipes by image that a Journal has; none without a ``path``.

    ``costs``  costs and softened costs of each recipe, float64 (N,) each
    ``run``    identifies what they depend on, see ``run_of``
    ``images`` number of costs of each recipe

    Raises UsageError for the journal of another run, or with recipes of another version, unless ``restart`` is set, and
    ParseError for one with other numbers.
    """

    def __init__(self, path: str | Path | None, run: Mapping[str, Any], restart: bool = False, images: int = 0) -> None:
        self._journal = Journal(path, run, restart, key="recipe") if path is not None else None
        self.costs: dict[Recipe, tuple[Array, Array]] = {}
        try:
            for name, record in self._journal.records.items() if self._journal is not None else ():
                recipe = _recipe(path, name)
                costs, softened = (_numbers(record.get(part), images) for part in ("costs", "softened"))
                if costs is None or softened is None:
                    message = f"recipe {name}: expected {images} finite numbers in 'costs' and in 'softened'"
                    raise ParseError(message, path=str(path), hint="--restart starts it over")
                self.costs[recipe] = costs, softened
        except BaseException:
            self.close()
            raise

    def add(self, built: Built) -> None:
        """Store the costs of a recipe for the next run."""
        if self._journal is not None:
            name = json.dumps(built.recipe.to_json(), sort_keys=True)
            self._journal.add([{"recipe": name, "costs": built.costs.tolist(), "softened": built.softened.tolist()}])

    def close(self) -> None:
        """Flush everything to disk."""
        if self._journal is not None:
            self._journal.close()


def _numbers(values: Any, count: int) -> Array | None:
    """Return a list as float64 (count,), or None if it is anything else than that many finite numbers."""
    if not isinstance(values, list) or len(values) != count:
        return None
    finite = all(type(value) in (int, float) and abs(value) <= sys.float_info.max for value in values)
    return np.array(values, np.float64) if finite else None


def _recipe(path: str | Path | None, name: Any) -> Recipe:
    """Return the recipe of this name. Raises UsageError if there is none."""

    def refuse(place: str, problem: str) -> UsageError:
        what = f"journal {path}: it has a recipe of another version of chai{place}: {problem}"
        return UsageError(what, hint="--restart empties the journal and starts over")

    try:
        values = json.loads(name)
    except (TypeError, ValueError):
        raise refuse("", f"{str(name)[:60]!r}") from None
    return restore(Recipe, values, refuse)


def run_of(prototxt: Path, weights: Path | None, observed: Observed, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the costs of recipes depend on: files, calibration images, options, chai's version.

    Custom layers may be functions of a program, which have no file: what they compute shows in the float outputs.
    """
    images, outputs = sha256(str(observed.images).encode()), sha256()
    for digest_of, batches in ((images, observed.batches), (outputs, observed.wanted)):
        for batch in batches:
            for blob, array in sorted(batch.items()):
                digest_of.update(f"{blob} {array.shape}".encode() + array.tobytes())
    for blob in sorted(observed.batches[0]):  # images that were not kept matter only through their ranges
        images.update(observed.seen[blob].counts.tobytes())
    return {
        "network prototxt": digest(*files_of(prototxt)),
        "network weights": digest(weights) if weights is not None else "",
        "images": images.hexdigest(),
        "float outputs": outputs.hexdigest(),
        "version of chai": chai.__version__,
        "options": dict(options),
    }
