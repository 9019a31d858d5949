"""Request: the arguments of ``quantize``, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..zoo import is_onnx
from ..zoo.options import Reading
from .groups import Widths, spelled
from .recipe import EFFORTS, Recipe

BUDGET = 0.1  # of the multiply-accumulates


def _silent(_what: str, _share: float) -> None:
    """Ignore the progress."""


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
    watch: Callable[[str, float], None] = _silent

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}: expected 0 or more", hint="the default is 0")
        if not 0 <= self.budget <= 1:
            raise UsageError(f"budget {self.budget:g}: expected a share of the multiply-accumulates, 0 to 1")
        widths = self.bits if isinstance(self.bits, tuple) else (self.bits,)
        if not self.mixed and (len(widths) not in (1, 3) or not set(widths) <= {8, 6}):
            raise UsageError(f"bits {spelled(self.bits)}: expected 8 or 6, three of them, or mixed")
        if self.effort not in EFFORTS:
            raise UsageError(f"effort {self.effort!r}: expected one of {', '.join(EFFORTS)}")
        if is_onnx(self.prototxt):
            raise UsageError(
                f"{self.prototxt}: ONNX files are not yet quantised by themselves",
                hint="evaluate, check and compile choose formats on --calibration DIR",
            )
        self._check_output(Path(self.output))

    def _check_output(self, output: Path) -> None:
        if output.suffix != ".prototxt":
            raise UsageError(
                f"{str(output)!r}: the output is a .prototxt; its weights go into the same folder",
                hint=f"name it {output.with_suffix('.prototxt')}",
            )
        if not output.resolve().parent.is_dir():
            raise UsageError(
                f"there is no folder {str(output.parent)!r} to write into", hint=f"mkdir -p {output.parent}"
            )
        for source in (self.prototxt, self.caffemodel or self.prototxt):
            for target in (output, output.with_suffix(".caffemodel")):
                if target.exists() and Path(source).exists() and target.samefile(source):
                    message = f"{str(target)!r} would be written over what it is made from"
                    raise UsageError(message, hint="name another output")

    @property
    def mixed(self) -> bool:
        """Return whether layers may have different widths."""
        return self.bits == "mixed"

    def described(self, scheme: str) -> dict[str, Any]:
        """Return the choices that a result records."""
        budget = self.budget if self.mixed else None
        return {"bits": self.bits, "budget": budget, "scheme": scheme, "effort": self.effort, "seed": self.seed}
