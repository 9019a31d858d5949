"""PriorBox against SSD's loops."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference.ssd import prior_box

from .common import Run, close, numbers

Floats = tuple[float, ...]

MAP = numbers(2, 3, 5, 7)
IMAGE = numbers(2, 4, 60, 98)


def listed(name: str, values: Floats) -> str:
    return " ".join(f"{name}: {v}" for v in values)


@pytest.mark.parametrize("mins", [(20.0,), (12.7, 30.0)], ids=["one", "two"])  # 12.7 counts as 12 pixels
@pytest.mark.parametrize("with_max", [False, True], ids=["no_max", "max"])
@pytest.mark.parametrize("ratios", [(), (2.0,), (1.0, 2.0, 3.0), (2.0, 0.5, 2.0)])
@pytest.mark.parametrize("flip", [True, False])
def test_boxes(run: Run, mins: Floats, with_max: bool, ratios: Floats, flip: bool) -> None:
    maxes = tuple(m * 1.75 for m in mins) if with_max else ()
    text = f"{listed('min_size', mins)} {listed('max_size', maxes)} {listed('aspect_ratio', ratios)}"
    (y,) = run("PriorBox", f"prior_box_param {{ {text} flip: {str(flip).lower()} }}", MAP, IMAGE)
    close(y, prior_box((5, 7), (60, 98), mins, maxes, ratios, flip))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("clip: true", {"clip": True}),
        ("offset: 0.25", {"offset": 0.25}),
        ("offset: 0", {"offset": 0.0}),
        ("step: 9.5", {"step": (9.5, 9.5)}),
        ("step_h: 11 step_w: 13", {"step": (11, 13)}),
        ("img_size: 77", {"image": (77, 77)}),
        ("img_h: 50 img_w: 70", {"image": (50, 70)}),
        ("img_h: 50 img_w: 70 step: 8", {"image": (50, 70), "step": (8, 8)}),
        ("variance: 0.3", {"variance": (0.3,)}),
        ("variance: 0.1 variance: 0.2 variance: 0.3 variance: 0.4", {"variance": (0.1, 0.2, 0.3, 0.4)}),
    ],
)
def test_options(run: Run, text: str, options: dict[str, Any]) -> None:
    text = f"min_size: 20 max_size: 41 aspect_ratio: 2 {text}"
    (y,) = run("PriorBox", f"prior_box_param {{ {text} }}", MAP, IMAGE)
    options = {"image": (60, 98), **options}
    close(y, prior_box((5, 7), min_sizes=(20,), max_sizes=(41,), ratios=(2,), **options))
    assert y.shape == (1, 2, 5 * 7 * 4 * 4)
