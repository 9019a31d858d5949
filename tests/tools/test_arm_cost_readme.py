"""The README's figures of a board: what the tool writes, and that they are those of chai show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chai.cli import main
from tools.arm_cost import readme

CONTENT: dict[str, Any] = {
    "modelled_fps": 21.04,
    "host": {"alone": {"images_per_second": [5.48, 7.89], "overlapping": [7.421, 12.616]}},
}
PRINTED = "layer  type\nspeed    21.0 new\nhost     modelled: new\noverlap  7.4 new\npicture  3.6 new\noutputs  prob\n"


def page(*lines: str) -> str:
    block = "\n".join(("layer  type", "memory   4 MB", *lines))
    marked = f"{readme.MARKS[0]}\n\nold\n\n{readme.MARKS[1]}"
    return f"# head\n\n{marked}\n\n```sh\n{readme.COMMAND}\n```\n```\n{block}\n```\n\nspeed    of something else\n"


def test_only_lines_of_figures_change() -> None:
    new = readme.updated(page("speed    20 old", "host     old"), PRINTED, CONTENT)
    lines = ("speed    21.0 new", "host     modelled: new", "overlap  7.4 new", "picture  3.6 new")
    assert new == page(*lines).replace("\nold\n", f"\n{readme.sentence(CONTENT)}\n")
    assert readme.updated(new, PRINTED, CONTENT) == new
    with pytest.raises(ValueError, match="the page lacks"):
        readme.updated("# head\n", PRINTED, CONTENT)


def test_the_first_figure_is_from_end_to_end() -> None:
    text = readme.sentence(CONTENT)
    assert text.index("5.5 to 7.9 images/second from end to end") < text.index("21.0 on the overlay alone")
    assert "All are modelled, not measured on a board" in text


def test_the_readme_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """If not: python -c "from tools.arm_cost import readme; readme.update()" writes it."""
    assert main([*readme.COMMAND.split()[1:], "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    text = readme.PAGE.read_text(encoding="utf-8")
    assert f"\n{readme.sentence(content)}\n" in text
    assert text.index("images/second") == text.index("images/second", text.index(readme.MARKS[0]))
